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

// decrypt calls run for a value, and waits for a KMS for patience at most. With a key that was decrypted it calls run itself:
// upstream has the key, and a goroutine for each value took a third of the time to decrypt it. Upstream forgets keys after a
// day; the KMS is asked again then, and waited for until its time-out.
func (o *outages) decrypt(ctx context.Context, data []byte, run decryption) (plain []byte, stale bool, err error) {
	kms, key := sealedBy(data)
	if kms == "" {
		return run()
	}
	known, err := o.refuse(kms, key, run)
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	if known {
		plain, stale, err = run()
	} else {
		plain, stale, err = run.within(patience)
	}
	o.record(ctx, kms, key, time.Since(began), err, run)
	return plain, stale, err
}

// within waits for the result for a limited time.
func (run decryption) within(limit time.Duration) ([]byte, bool, error) {
	type result struct {
		plain []byte
		stale bool
		err   error
	}
	results := make(chan result, 1)
	go func() {
		var r result
		r.plain, r.stale, r.err = run()
		results <- r
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.plain, r.stale, r.err
	case <-timer.C:
		return nil, false, fmt.Errorf("the KMS plugin has not answered within %v", limit)
	}
}

// refuse returns why a value is not decrypted: its KMS is away, and the key is not cached. known says that it is cached.
func (o *outages) refuse(kms, key string, run decryption) (known bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.kms[kms]
	if p == nil {
		return false, nil
	}
	if p.keys[key] || p.away == nil {
		return p.keys[key], nil
	}
	p.next = run
	return false, p.away
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
