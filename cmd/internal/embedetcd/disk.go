package embedetcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/grpc"
)

const (
	// diskReserve is the free space, in bytes, that the member leaves on its disk. etcd
	// exits when a write of its own fails with ENOSPC: a new WAL segment (walSegment), a
	// larger database, or the temporary file of a snapshot. The reserve has room for these
	// and for the writes in progress.
	diskReserve = 64 << 20
	// walSegment is the size, in bytes, that etcd allocates for each WAL segment in
	// advance; it keeps one spare. etcd's own default of 64 MB would be most of what
	// a small installation stores.
	walSegment = 16 << 20
)

func init() { wal.SegmentSizeBytes = walSegment }

// disk rejects requests that store more while its file system is nearly full. Reads,
// deletions and compactions pass.
type disk struct {
	dir  string
	free func(dir string) (uint64, error)
	log  *slog.Logger
	low  atomic.Bool // as of the last check
}

// isLow reports whether the free space is less than the reserve, and logs when that changes.
// An unknown free space is not low.
func (d *disk) isLow() bool {
	free, err := d.free(d.dir)
	low := err == nil && free < diskReserve
	if d.low.CompareAndSwap(!low, low) {
		if low {
			d.log.Error(fmt.Sprintf("the disk of %s is nearly full: writes are rejected with 507 until it has %d MiB free", d.dir, diskReserve>>20), "freeBytes", free)
		} else {
			d.log.Info("the disk has room again: writes are accepted", "dir", d.dir, "freeBytes", free)
		}
	}
	return low
}

// intercept is the gRPC interceptor. Its error is that of etcd at its quota.
func (d *disk) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if stores(req) && d.isLow() {
		return nil, rpctypes.ErrGRPCNoSpace
	}
	return handler(ctx, req)
}

// stores reports whether a request adds to what is stored.
func stores(req any) bool {
	switch r := req.(type) {
	case *etcdserverpb.PutRequest, *etcdserverpb.LeaseGrantRequest:
		return true
	case *etcdserverpb.TxnRequest:
		for _, ops := range [][]*etcdserverpb.RequestOp{r.Success, r.Failure} {
			for _, op := range ops {
				if op.GetRequestPut() != nil || op.GetRequestTxn() != nil && stores(op.GetRequestTxn()) {
					return true
				}
			}
		}
	}
	return false
}

// FreeSpace returns the number of bytes that an unprivileged process can write to the file
// system of dir.
func FreeSpace(dir string) (uint64, error) {
	var s syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &s)
		if err == nil {
			return uint64(s.Bavail) * uint64(s.Bsize), nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return 0, fmt.Errorf("read free space of %s: %w", dir, err)
		}
	}
}
