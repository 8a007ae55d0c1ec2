package etcd

import (
	"bytes"
	"context"
	"time"
)

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
