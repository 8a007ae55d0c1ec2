package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico/cmd/e2e/etcdprocess"
	"portico/internal/testing/await"
)

// An etcd that is killed while it is written to starts on its data again, although database and
// write-ahead log end at different entries, and has every acknowledged write.
func TestEtcdKilledUnderLoad(t *testing.T) {
	t.Parallel()
	etcd := etcdprocess.Start(t)
	const writers = 32
	var acked [writers]int
	for round := range 6 {
		if round > 0 {
			etcd.Start(t)
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, DialTimeout: await.Patience(), Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		for w, n := range acked {
			got, err := client.Get(t.Context(), fmt.Sprint("key-", w))
			if err != nil {
				t.Fatal(err)
			}
			var stored int
			if len(got.Kvs) == 1 {
				fmt.Sscan(string(got.Kvs[0].Value), &stored)
			}
			if stored < n {
				t.Errorf("round %d: writer %d: %d is stored, %d was acknowledged", round, w, stored, n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var reached sync.WaitGroup
		reached.Add(writers)
		for w := range writers {
			running.Go(func() {
				// Rounds end after different numbers of writes, and together after more than are
				// between two raft snapshots.
				until := acked[w] + 40*(1+round)
				first := sync.OnceFunc(reached.Done)
				defer first()
				for n := acked[w] + 1; ; n++ {
					if _, err := client.Put(ctx, fmt.Sprint("key-", w), fmt.Sprint(n, " ", strings.Repeat("x", 500))); err != nil {
						return
					}
					if acked[w] = n; n == until {
						first()
					}
				}
			})
		}
		reached.Wait()
		etcd.Kill()
		cancel()
		running.Wait()
		client.Close()
	}
}
