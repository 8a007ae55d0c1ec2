package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// documentRoot is the prefix of the documents, outside the range of every feed.
const documentRoot = "portico/documents"

// ErrDocumentChanged is the error of a write to a document that has changed.
var ErrDocumentChanged = errors.New("the document has changed meanwhile")

// Documents are named values that are not resources, shared by the processes of one kind.
// They are not watched, and each must fit one key. Safe for concurrent use.
type Documents struct {
	client      *Client
	root        string
	transformer Transformer
}

// Document is the value of a document.
type Document struct {
	Data []byte
	// Revision is the revision of the last write.
	Revision int64
}

// Documents returns the documents of a family. Clients with other prefixes have other
// documents. The Transformer converts them as objects of DocumentResource, except versions,
// which are read by programs without its configuration, and documents of running processes,
// which say nothing of objects.
func (c *Client) Documents(family string) *Documents {
	d := &Documents{client: c, root: documentRoot + c.prefix + strings.Trim(family, "/") + "/", transformer: c.transformer}
	if family == VersionFamily || strings.HasPrefix(family, PresenceFamily+"/") {
		d.transformer = identity{}
	}
	return d
}

// Read returns all documents by name. One that cannot be decrypted has no Data, so that it
// can be replaced.
func (d *Documents) Read(ctx context.Context) (map[string]Document, error) {
	reading, cancel := context.WithTimeout(ctx, d.client.timeout)
	defer cancel()
	resp, err := d.client.attempt(reading, d.root, clientv3.WithPrefix())
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	out := make(map[string]Document, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		data, _, err := d.transformer.FromStorage(DocumentResource, kv.Value, kv.Key)
		if err != nil {
			d.client.log.Warn("a document in etcd cannot be read", "key", string(kv.Key), "error", err)
			data = nil
		}
		out[strings.TrimPrefix(string(kv.Key), d.root)] = Document{Data: data, Revision: kv.ModRevision}
	}
	return out, nil
}

// Write replaces a document at revision after (0: it does not exist) and returns its new
// revision. If it has another revision, the error is ErrDocumentChanged; other errors
// are StatusErrors.
func (d *Documents) Write(ctx context.Context, name string, data []byte, after int64) (int64, error) {
	key := []byte(d.root + name)
	value, err := d.transformer.ToStorage(DocumentResource, data, key)
	if err != nil {
		return 0, fmt.Errorf("encrypt document %s: %w", name, err)
	}
	at, _, ok, err := d.client.commit(ctx, &d.client.scope, opUpdate, key, after, putOp(key, value, 0))
	return at, documentError(ctx, ok, err)
}

// Delete removes a document at revision after. Errors are as of Write.
func (d *Documents) Delete(ctx context.Context, name string, after int64) error {
	key := []byte(d.root + name)
	_, _, ok, err := d.client.commit(ctx, &d.client.scope, opDelete, key, after, deleteOp(key))
	return documentError(ctx, ok, err)
}

func documentError(ctx context.Context, ok bool, err error) error {
	if err == nil && !ok {
		return ErrDocumentChanged
	}
	return writeStatus(ctx, err)
}

// VersionFamily is the family of the documents that have the version of each kind of process.
const VersionFamily = "versions"

// recordPause is the pause between attempts to record a version.
const recordPause = 10 * time.Second

// RecordVersion stores the version of a kind of process, of which the one that started last remains, and returns ctx's error
// when ctx ends. It is for `portico upgrade-check`; nothing depends on it.
func (c *Client) RecordVersion(ctx context.Context, process, version string) error {
	documents := c.Documents(VersionFamily)
	for ctx.Err() == nil {
		err := documents.set(ctx, process, []byte(version))
		if err == nil {
			break
		}
		c.log.Debug("the version was not recorded; retrying", "error", err)
		c.breaker.wait(ctx)
		if err := pause(ctx, recordPause); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// set writes a document unless it has the data already.
func (d *Documents) set(ctx context.Context, name string, data []byte) error {
	all, err := d.Read(ctx)
	if err != nil || bytes.Equal(all[name].Data, data) {
		return err
	}
	_, err = d.Write(ctx, name, data, all[name].Revision)
	return err
}
