package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// documentRoot holds the documents, outside of every feed's range.
const documentRoot = "portico/documents"

// ErrDocumentChanged is the error of a write after a concurrent one.
var ErrDocumentChanged = errors.New("the document has changed meanwhile")

// Documents are named values that are no resources: what processes of one kind
// leave for each other. They are not watched, and each is small enough for one
// key. Safe for concurrent use.
type Documents struct {
	client *Client
	root   string
}

// Document is one of them.
type Document struct {
	Data []byte
	// Revision is that of the last write, for the next one.
	Revision int64
}

// Documents returns the documents of that family, which belong to the prefix
// that the client's objects are below.
func (c *Client) Documents(family string) *Documents {
	return &Documents{client: c, root: documentRoot + c.prefix + strings.Trim(family, "/") + "/"}
}

// Read returns all documents by their names. One that cannot be decrypted is
// there without Data, so that it can be replaced.
func (d *Documents) Read(ctx context.Context) (map[string]Document, error) {
	reading, cancel := context.WithTimeout(ctx, d.client.timeout)
	defer cancel()
	resp, err := d.client.etcd.Get(reading, d.root, clientv3.WithPrefix())
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	out := make(map[string]Document, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		data, _, err := d.client.transformer.FromStorage(kv.Value, kv.Key)
		if err != nil {
			d.client.log.Warn("a document in etcd cannot be read", "key", string(kv.Key), "error", err)
			data = nil
		}
		out[strings.TrimPrefix(string(kv.Key), d.root)] = Document{Data: data, Revision: kv.ModRevision}
	}
	return out, nil
}

// Write replaces a document that still is at the revision after (0: there is
// none) and returns its new revision. If it is not, the error is
// ErrDocumentChanged; others are StatusErrors.
func (d *Documents) Write(ctx context.Context, name string, data []byte, after int64) (int64, error) {
	key := []byte(d.root + name)
	value, err := d.client.transformer.ToStorage(data, key)
	if err != nil {
		return 0, fmt.Errorf("encrypt document %s: %w", name, err)
	}
	at, _, ok, err := d.client.commit(ctx, d.client.own, opUpdate, key, after, putOp(key, value, 0))
	return at, documentError(ctx, ok, err)
}

// Delete removes a document that still is at the revision after. Errors are as
// of Write.
func (d *Documents) Delete(ctx context.Context, name string, after int64) error {
	key := []byte(d.root + name)
	_, _, ok, err := d.client.commit(ctx, d.client.own, opDelete, key, after, deleteOp(key))
	return documentError(ctx, ok, err)
}

func documentError(ctx context.Context, ok bool, err error) error {
	switch {
	case err != nil:
		return writeStatus(ctx, err)
	case !ok:
		return ErrDocumentChanged
	}
	return nil
}
