package etcd

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// sealedPause is the pause between attempts to decrypt values of a feed that could not be decrypted.
	sealedPause = 5 * time.Second
	// sealedSamples is how many values of each key are tried.
	sealedSamples = 2
)

// sealed are some values of a feed that could not be decrypted: the server of their key is away, or
// the configuration lacks it. Safe for concurrent use.
type sealed struct {
	mu     sync.Mutex
	values map[string][]*mvccpb.KeyValue // by what encrypted them
}

// add adds a value; false if there are enough of its key.
func (s *sealed) add(kv *mvccpb.KeyValue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := Encryption(kv.Value)
	if len(s.values[by]) == sealedSamples {
		return false
	}
	if s.values == nil {
		s.values = map[string][]*mvccpb.KeyValue{}
	}
	s.values[by] = append(s.values[by], kv)
	return true
}

// all returns the values.
func (s *sealed) all() (all []*mvccpb.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, some := range s.values {
		all = append(all, some...)
	}
	return all
}

// clear removes the values.
func (s *sealed) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = nil
}

// retrySealed makes the feed read its range again once values can be decrypted that could not be,
// until ctx ends.
func (f *feed) retrySealed(ctx context.Context) {
	for pause(ctx, f.sealedPause) == nil {
		for _, kv := range f.sealed.all() {
			if _, _, err := f.plain(kv); err != nil {
				continue
			}
			f.sealed.clear()
			f.log.Info("values can be decrypted again")
			signal(f.regressed)
			break
		}
	}
}
