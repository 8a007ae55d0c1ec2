package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// presenceTTL is the duration of the lease of a Presence, in seconds: the document of a process that dies is removed
// in that time. A starved process renews its lease late. Renewing it writes nothing.
const presenceTTL = 10

// PresenceFamily is the family of the documents of running processes, by kind of process.
const PresenceFamily = "processes"

// Presence is a document of one running process, which the other processes of its kind read. It is removed when the
// process ends, or in presenceTTL seconds if it is killed; its identity Lease (package identity), which clients see, stays for
// much longer. Safe for concurrent use.
type Presence struct {
	documents *Documents
	name      string

	mu    sync.Mutex // not held during requests
	data  []byte
	lease clientv3.LeaseID // 0: none
}

// Presence returns the document of this process of a kind. It is stored by Run. A process that starts again with the
// same name replaces its document.
func (c *Client) Presence(kind, name string) *Presence {
	return &Presence{documents: c.Documents(PresenceFamily + "/" + kind), name: name}
}

// Run keeps the document in etcd until ctx ends, and returns ctx's error.
func (p *Presence) Run(ctx context.Context) error {
	c := p.documents.client
	for {
		err := p.attend(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("this process is not present in etcd; retrying", "key", p.documents.root+p.name, "error", err)
		c.breaker.wait(ctx)
		if err := pause(ctx, campaignPause); err != nil {
			return err
		}
	}
}

// attend stores the document and keeps its lease until the lease or ctx ends.
func (p *Presence) attend(ctx context.Context) error {
	session, err := p.documents.client.openSession(ctx, presenceTTL)
	if err != nil {
		return err
	}
	defer session.close()
	grant := session.Lease()
	p.mu.Lock()
	p.lease = grant
	data := p.data
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lease = 0
	}()
	if err := p.put(ctx, data, grant); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-session.Done():
		return fmt.Errorf("the lease of %s has ended", p.name)
	}
}

// Set replaces the data of the document. If the document is not in etcd, Run stores it with this data.
func (p *Presence) Set(ctx context.Context, data []byte) error {
	p.mu.Lock()
	p.data = data
	lease := p.lease
	p.mu.Unlock()
	if lease == 0 {
		return nil
	}
	return p.put(ctx, data, lease)
}

func (p *Presence) put(ctx context.Context, data []byte, lease clientv3.LeaseID) error {
	d := p.documents
	key := []byte(d.root + p.name)
	value, err := d.transformer.ToStorage(DocumentResource, data, key)
	if err != nil {
		return fmt.Errorf("encrypt document %s: %w", p.name, err)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Duration(presenceTTL)*time.Second)
	defer cancel()
	if _, err := d.client.etcd.Put(bounded, string(key), string(value), clientv3.WithLease(lease)); err != nil {
		return asStatus(ctx, err)
	}
	return nil
}

// Others returns the documents of the other processes of the kind that are running, by name.
func (p *Presence) Others(ctx context.Context) (map[string]Document, error) {
	all, err := p.documents.Read(ctx)
	delete(all, p.name)
	return all, err
}
