package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// short are lifetimes of which generations pass in minutes.
var short = Lifetimes{Leaf: 30 * time.Second, Authority: 2 * time.Minute}

// snapshot is what a process or a client read at one time.
type snapshot struct {
	at      time.Time
	trusted []*x509.Certificate
	leaf    *pair
}

func take(t *testing.T, caFile string, leaf Pair, at time.Time) snapshot {
	t.Helper()
	trusted, err := readCertificates(caFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPair(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot{at: at, trusted: trusted, leaf: p}
}

// accepts verifies the leaf of another snapshot as crypto/tls does.
func (s snapshot) accepts(peer snapshot, now time.Time, use x509.ExtKeyUsage) error {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}}
	for _, c := range s.trusted {
		opts.Roots.AddCert(c)
	}
	for _, c := range peer.leaf.chain {
		opts.Intermediates.AddCert(c)
	}
	_, err := peer.leaf.cert.Verify(opts)
	return err
}

func (s snapshot) certificates() []*x509.Certificate {
	return slices.Concat([]*x509.Certificate{s.leaf.cert}, s.leaf.chain, s.trusted)
}

// trustEnds is when the last certificate ends that a snapshot trusts.
func (s snapshot) trustEnds() (end time.Time) {
	for _, c := range s.trusted {
		if c.NotAfter.After(end) {
			end = c.NotAfter
		}
	}
	return end
}

// Through ten generations of each authority, what was read at any time works with what was read at
// any other: a leaf until it ends, and trust until the last authority in it ends. No leaf comes near
// its end, and no more than two authorities are trusted at a time.
func TestGenerationsOverlap(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	uses := []struct {
		of       func(*Files) (string, Pair)
		use      x509.ExtKeyUsage
		taken    []snapshot
		replaced int
	}{
		{of: func(f *Files) (string, Pair) { return f.ServingCAFile, f.Serving }, use: x509.ExtKeyUsageServerAuth},
		{of: func(f *Files) (string, Pair) { return f.ClientCAFile, f.Admin }, use: x509.ExtKeyUsageClientAuth},
		{of: func(f *Files) (string, Pair) { return f.FrontProxyCAFile, f.FrontProxy }, use: x509.ExtKeyUsageClientAuth},
	}
	for passed := time.Duration(0); passed < 11*time.Minute; passed += 3 * time.Second {
		now := start.Add(passed)
		f := ensure(t, Config{Dir: dir, Now: now, Lifetimes: short})
		for i := range uses {
			u := &uses[i]
			caFile, leaf := u.of(f)
			latest := take(t, caFile, leaf, now)
			if left := latest.leaf.cert.NotAfter.Sub(now); left < 7*time.Second {
				t.Fatalf("after %v: %s ends in %v", passed, leaf.CertFile, left)
			}
			if len(latest.trusted) > 2 {
				t.Fatalf("after %v: %d authorities are trusted", passed, len(latest.trusted))
			}
			for _, earlier := range append(u.taken, latest) {
				if now.Before(earlier.trustEnds()) {
					if err := earlier.accepts(latest, now, u.use); err != nil {
						t.Fatalf("after %v: %s with the trust of %v before: %v", passed, leaf.CertFile, now.Sub(earlier.at), err)
					}
				}
				if now.Before(earlier.leaf.cert.NotAfter) {
					if err := latest.accepts(earlier, now, u.use); err != nil {
						t.Fatalf("after %v: %s of %v before: %v", passed, leaf.CertFile, now.Sub(earlier.at), err)
					}
				}
			}
			if n := len(u.taken); n > 0 && !u.taken[n-1].trusted[0].Equal(latest.trusted[0]) {
				u.replaced++
			}
			u.taken = slices.DeleteFunc(u.taken, func(s snapshot) bool { return now.After(s.trustEnds()) })
			if n := len(u.taken); n == 0 || !slices.EqualFunc(u.taken[n-1].certificates(), latest.certificates(), (*x509.Certificate).Equal) {
				u.taken = append(u.taken, latest)
			}
		}
	}
	for _, u := range uses {
		if u.replaced < 10 {
			t.Errorf("%d authorities followed each other, want 10", u.replaced)
		}
	}
}

// A new signing key for tokens is published before it signs, and those before it stay published.
func TestSigningKeyIsPublishedFirst(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	var before string // the published keys at the last step
	var used []string
	for passed := time.Duration(0); passed < 5*time.Minute; passed += 3 * time.Second {
		f := ensure(t, Config{Dir: dir, Now: start.Add(passed), Lifetimes: short})
		published, key := read(t, f.ServiceAccountPublicKeyFile), read(t, f.ServiceAccountKeyFile)
		if n := len(used); n == 0 || used[n-1] != key {
			used = append(used, key)
			private, err := keyutil.ParsePrivateKeyPEM([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 && !publishes(t, before, private) {
				t.Fatalf("after %v: a key signs that was not published before", passed)
			}
		}
		for _, key := range used {
			private, err := keyutil.ParsePrivateKeyPEM([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if !publishes(t, published, private) {
				t.Fatalf("after %v: a key that has signed is not published", passed)
			}
		}
		before = published
	}
	if len(used) < 4 {
		t.Errorf("%d keys have signed", len(used))
	}
}

// As many replacements may be requested one after the other as earlier CAs are trusted. What was read at any time accepts the latest
// leaf, although crypto/x509 makes a bounded number of attempts to verify it.
func TestManyRequestedReplacements(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	var taken []snapshot
	for range MaxEarlier + 2 {
		f := ensure(t, Config{Dir: dir, Now: now})
		taken = append(taken, take(t, f.ServingCAFile, f.Serving, now))
		if err := ReplaceAuthorities.Request(dir); err != nil {
			t.Fatal(err)
		}
		f = ensure(t, Config{Dir: dir, Now: now})
		taken = append(taken, take(t, f.ServingCAFile, f.Serving, now))
		now = f.NextUse
	}
	latest := taken[len(taken)-1]
	if all, err := Replacements(dir); err != nil || len(all[0].Earlier) <= MaxEarlier {
		t.Fatalf("%d earlier CAs: %v", len(all[0].Earlier), err)
	}
	for i, s := range taken {
		if err := s.accepts(latest, now, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("what was read at step %d of %d: %v", i, len(taken), err)
		}
	}
}

func publishes(t *testing.T, file string, private any) bool {
	t.Helper()
	keys, err := keyutil.ParsePublicKeysPEM([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	public := private.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool })
	return slices.ContainsFunc(keys, func(k any) bool { return public.Equal(k) })
}

var errCrash = errors.New("crash")

// Every change of a file is cut off once by a crash. The next call completes what was begun, and what
// was read before and after works together.
func TestCrashesOfARollover(t *testing.T) {
	t.Cleanup(func() { beforeRename = func(string) error { return nil } })
	crashes, again := 0, map[string]bool{}
	beforeRename = func(to string) error {
		if again[to] = !again[to]; again[to] {
			crashes++
			return errCrash
		}
		return nil
	}
	dir, start := t.TempDir(), time.Now()
	var last snapshot
	for passed := time.Duration(0); passed < 5*time.Minute; passed += 3 * time.Second {
		now := start.Add(passed)
		f, err := (*Files)(nil), errCrash
		for err != nil {
			if f, err = Ensure(Config{Dir: dir, Now: now, Lifetimes: short}); err != nil && !errors.Is(err, errCrash) {
				t.Fatalf("after %v and %d crashes: %v", passed, crashes, err)
			}
		}
		s := take(t, f.ServingCAFile, f.Serving, now)
		if last.leaf != nil {
			if err := errors.Join(s.accepts(last, now, x509.ExtKeyUsageServerAuth), last.accepts(s, now, x509.ExtKeyUsageServerAuth)); err != nil {
				t.Fatalf("after %v and %d crashes: %v", passed, crashes, err)
			}
		}
		last = s
	}
	if crashes < 100 {
		t.Errorf("%d crashes", crashes)
	}
}

// An installation that was off until its authorities had ended starts with new ones.
func TestAuthoritiesThatHaveEnded(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	ensure(t, Config{Dir: dir, Now: start, Lifetimes: short})
	for _, off := range []time.Duration{70 * time.Second, time.Hour, 2 * time.Hour} {
		now := start.Add(off)
		f := ensure(t, Config{Dir: dir, Now: now, Lifetimes: short})
		s := take(t, f.ServingCAFile, f.Serving, now)
		if err := s.accepts(s, now, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("after %v: %v", off, err)
		}
		if _, err := os.Stat(f.KubeletServingCA.KeyFile); err != nil {
			t.Error(err)
		}
	}
}

// A requested replacement begins at once and only once, and ends the trust in the earlier CAs only when that is
// requested.
func TestRequestedReplacement(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	ensure := func(at time.Time) *Files {
		t.Helper()
		f, err := Ensure(Config{Dir: dir, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	state := func() Replacement {
		t.Helper()
		all, err := Replacements(dir)
		if err != nil || len(all) != 4 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0]
	}
	if f := ensure(now); !f.NextUse.IsZero() || !state().UsedFrom.IsZero() {
		t.Fatalf("a replacement is under way: %v, %+v", f.NextUse, state())
	}
	first := state().Ends
	var used time.Time
	for n := range 2 {
		if err := ReplaceAuthorities.Request(dir); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(n+1) * time.Minute)
		f := ensure(at)
		if n == 0 {
			used = f.NextUse
		}
		if s := state(); ReplaceAuthorities.Pending(dir) || !f.NextUse.Equal(used) || used.Sub(now) > 2*time.Hour || !s.UsedFrom.Equal(used) || len(s.Earlier) > 0 || !s.Ends.Equal(first) {
			t.Fatalf("request %d: used from %v, %v, %+v", n, used, f.NextUse, s)
		}
	}
	f := ensure(used)
	if s := state(); !f.NextUse.IsZero() || len(s.Earlier) != 1 || !s.Earlier[0].Equal(first) {
		t.Fatalf("the next one is not used: %v, %+v", f.NextUse, s)
	}
	if err := RetireAuthorities.Request(dir); err != nil {
		t.Fatal(err)
	}
	ensure(used.Add(time.Minute))
	if s := state(); RetireAuthorities.Pending(dir) || len(s.Earlier) > 0 {
		t.Fatalf("the earlier one is trusted: %+v", s)
	}
}
