package identity

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

var (
	tcp  = []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}, &net.TCPAddr{IP: net.IPv6loopback, Port: 6443}}
	unix = []net.Addr{&net.UnixAddr{Net: "unix", Name: "/run/core.sock"}}
)

func open() *Leases {
	kept := memstore.New()
	return Open(func(i *resource.Info) resource.Store { return kept.Store(i) })
}

// list returns the processes, or nil with an error of the test.
func list(t *testing.T, l *Leases) []Process {
	t.Helper()
	all, err := l.List(t.Context())
	if err != nil {
		t.Error(err)
	}
	return all
}

// The Lease of each process is in kube-system as kube-apiserver's is, and goes with the process.
func TestProcesses(t *testing.T) {
	t.Parallel()
	l := open()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for _, p := range []Process{New("core", "b", unix), New("gateway", "c", tcp), New("core", "a", tcp)} {
		go func() { ended <- l.Keep(ctx, p, slog.New(slog.DiscardHandler)) }()
	}
	await.Until(t, "three processes are listed", func() bool { return len(list(t, l)) == 3 })
	all := list(t, l)
	want := []Process{
		{Component: "gateway", Instance: "c", Address: "192.0.2.1:6443,[::1]:6443"},
		{Component: "core", Instance: "a", Address: "192.0.2.1:6443,[::1]:6443"},
		{Component: "core", Instance: "b", Address: "unix:///run/core.sock"},
	}
	for i, p := range all {
		if p.Version == "" || p.Started.IsZero() || p.Silent(time.Now()) || !p.Silent(time.Now().Add(time.Minute)) {
			t.Errorf("process %+v", p)
		}
		p.Lease, p.Version, p.Started, p.Renewed = "", "", time.Time{}, time.Time{}
		if p != want[i] {
			t.Errorf("process %d is %+v, want %+v", i, p, want[i])
		}
	}
	lease := read(t, l, all[0].Lease)
	if s := lease.Spec; lease.Labels["apiserver.kubernetes.io/identity"] != "portico-gateway" || *s.LeaseDurationSeconds != 3600 || len(*s.HolderIdentity) <= len(lease.Name) ||
		lease.UID == "" || lease.CreationTimestamp.IsZero() {
		t.Errorf("the lease is %+v", lease)
	}
	cancel()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if all := list(t, l); len(all) != 0 {
		t.Errorf("after the end: %+v", all)
	}
}

func read(t *testing.T, l *Leases, name string) *coordinationv1.Lease {
	t.Helper()
	o, err := l.store.Get(t.Context(), resource.Key{Namespace: "kube-system", Name: name}, resource.At{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := rest.DecodeAs[*coordinationv1.Lease](l.kind, o)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A process replaces the Lease of the one that it follows, and leaves it to the one that follows;
// a renewal changes the time only.
func TestSuccession(t *testing.T) {
	t.Parallel()
	l := open()
	p := New("crd", "a", unix)
	p.Lease = leaseName(&p, "host")
	if other := New("crd", "b", tcp); leaseName(&other, "host") == p.Lease || leaseName(&p, "elsewhere") == p.Lease {
		t.Error("two processes have one name")
	}
	if next := New("crd", "b", unix); leaseName(&next, "host") != p.Lease {
		t.Error("the next process has another name")
	}
	if err := l.renew(t.Context(), &p, "host", "first"); err != nil {
		t.Fatal(err)
	}
	first := read(t, l, p.Lease)
	if err := l.renew(t.Context(), &p, "host", "first"); err != nil {
		t.Fatal(err)
	}
	again := read(t, l, p.Lease)
	if !again.Spec.RenewTime.After(first.Spec.RenewTime.Time) || again.UID != first.UID || *again.Spec.AcquireTime != *first.Spec.AcquireTime {
		t.Errorf("renewed %+v, first %+v", again, first)
	}
	held := func(by string) func(*coordinationv1.Lease) bool {
		return func(lease *coordinationv1.Lease) bool { return *lease.Spec.HolderIdentity == by }
	}
	if err := l.remove(t.Context(), p.Lease, held("second")); err != nil || len(list(t, l)) != 1 {
		t.Errorf("the lease of another process was removed (%v)", err)
	}
	if err := l.remove(t.Context(), p.Lease, held("first")); err != nil || len(list(t, l)) != 0 {
		t.Errorf("the lease is still there (%v)", err)
	}
}

// A Lease that was not renewed for an hour is removed, and no other one.
func TestSweep(t *testing.T) {
	t.Parallel()
	l := open()
	write := func(name, identity string, age time.Duration) {
		t.Helper()
		now := metav1.NewMicroTime(time.Now().Add(-age))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{Label: identity}}}
		lease.Spec.RenewTime = &now
		o, err := l.kind.Codec.EncodeStored(lease)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.store.Create(t.Context(), resource.Key{Namespace: "kube-system", Name: name}, o, 0); err != nil {
			t.Fatal(err)
		}
	}
	write("gone", "portico-core", 61*time.Minute)
	write("silent", "portico-core", 59*time.Minute)
	write("other", "kube-apiserver", 61*time.Minute)
	l.sweep(t.Context(), slog.New(slog.DiscardHandler))
	if all := list(t, l); len(all) != 1 || all[0].Lease != "silent" {
		t.Errorf("processes are %+v", all)
	}
	read(t, l, "other")
}
