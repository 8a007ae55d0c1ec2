package encryption

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	kmsv2 "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

const (
	// patience is how long attempts to decrypt values of a KMS may fail, with no success between
	// them, until it counts as away.
	patience = 2 * time.Second
	// retryPause is the pause between attempts while a KMS is away.
	retryPause = time.Second
	// maxKeys bounds the keys of a KMS that are known to be cached.
	maxKeys = 10000
)

// sealedBy returns the KMS that encrypted a value, as in v2:vault, "" for none, and the encrypted
// key of the value, "" if it is not known. Upstream caches the keys that a KMS has decrypted.
func sealedBy(data []byte) (kms, key string) {
	rest, ok := bytes.CutPrefix(data, []byte("k8s:enc:kms:"))
	if !ok {
		return "", ""
	}
	version, rest, _ := bytes.Cut(rest, []byte(":"))
	name, rest, _ := bytes.Cut(rest, []byte(":"))
	kms = string(version) + ":" + string(name)
	var o kmsv2.EncryptedObject
	if string(version) != "v2" || proto.Unmarshal(rest, &o) != nil {
		return kms, ""
	}
	return kms, string(o.EncryptedDEKSource)
}

// decryption decrypts one value. It may be called again.
type decryption func() (plain []byte, stale bool, err error)

// outages find out which KMS are away. While one is, values whose keys are not cached fail at
// once, and one attempt at a time finds out whether it is back. Safe for concurrent use.
type outages struct {
	mu  sync.Mutex
	kms map[string]*provider
}

// provider is a KMS.
type provider struct {
	keys   map[string]bool // that were decrypted
	failed time.Duration   // how long attempts failed since the last success
	away   error           // nil: it is asked
	next   decryption      // of the latest value that was refused
}

// decrypt calls run for a value, and waits for a KMS for patience at most.
func (o *outages) decrypt(ctx context.Context, data []byte, run decryption) ([]byte, bool, error) {
	kms, key := sealedBy(data)
	if kms == "" {
		return run()
	}
	if err := o.refuse(kms, key, run); err != nil {
		return nil, false, err
	}
	type result struct {
		plain []byte
		stale bool
		err   error
	}
	began, results := time.Now(), make(chan result, 1)
	go func() {
		var r result
		r.plain, r.stale, r.err = run()
		results <- r
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var r result
	select {
	case r = <-results:
	case <-timer.C:
		r.err = fmt.Errorf("the KMS plugin has not answered within %v", patience)
	}
	o.record(ctx, kms, key, time.Since(began), r.err, run)
	return r.plain, r.stale, r.err
}

// refuse returns why a value is not decrypted: its KMS is away, and the key is not cached.
func (o *outages) refuse(kms, key string, run decryption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.kms[kms]
	if p == nil || p.away == nil || p.keys[key] {
		return nil
	}
	p.next = run
	return p.away
}

// record records an attempt.
func (o *outages) record(ctx context.Context, kms, key string, took time.Duration, err error, run decryption) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.kms[kms]
	if p == nil {
		p = &provider{}
		if o.kms == nil {
			o.kms = map[string]*provider{}
		}
		o.kms[kms] = p
	}
	if err == nil {
		p.failed = 0
		if len(p.keys) == 0 || len(p.keys) >= maxKeys {
			p.keys = map[string]bool{}
		}
		p.keys[key] = key != ""
		return
	}
	delete(p.keys, key)
	if p.failed += took; p.failed >= patience && p.away == nil {
		p.away, p.next = fmt.Errorf("KMS provider %s is away: %w", kms, err), run
		go o.retry(ctx, p)
	}
}

// retry ends an outage once a value can be decrypted.
func (o *outages) retry(ctx context.Context, p *provider) {
	for {
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}
		o.mu.Lock()
		next := p.next
		o.mu.Unlock()
		if _, _, err := next(); err == nil {
			o.mu.Lock()
			p.away, p.next, p.failed = nil, nil, 0
			o.mu.Unlock()
			return
		}
	}
}
