package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/cmd/internal/testtools"
)

// bodiesThatWait is how many requests without their bodies an attack has open: more than the gateway
// lets wait in a level.
const bodiesThatWait = 800

// hold has a user send requests to review whose bodies never come, n at a time, until ctx ends. Each
// is repeated a second after its answer.
func (i *installation) hold(ctx context.Context, all *sync.WaitGroup, certificate *tls.Certificate, n int, as string) {
	client := i.client(certificate)
	client.Timeout = 0
	context.AfterFunc(ctx, client.CloseIdleConnections)
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				body, never := io.Pipe()
				r, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, i.Endpoint+review, body)
				if err != nil {
					return
				}
				r.ContentLength = 100
				r.Header.Set("Content-Type", "application/json")
				if as != "" {
					r.Header.Set("Impersonate-User", as)
				}
				if res, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				never.Close()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
}

// edits gives a user the role edit in a namespace.
func (i *installation) edits(t *testing.T, user, namespace string) {
	t.Helper()
	i.must(t, "POST", rbac+"/namespaces/"+namespace+"/rolebindings", rbacObject("RoleBinding", user,
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},`+strings.ReplaceAll(toSelf, "SELF", user)))
}

// victim sends a request that must be served.
type victim struct {
	name, method, path, body string
	client                   *nethttp.Client
	header                   []string
}

// victims are users of several priority levels, with what they need to write.
func (i *installation) victims(t *testing.T) []victim {
	t.Helper()
	const leases, maps = "/apis/coordination.k8s.io/v1/namespaces/", "/api/v1/namespaces/b/configmaps"
	const lease, configMap = `{"metadata":{"generateName":"l"},"spec":{"holderIdentity":"x"}}`, `{"metadata":{"generateName":"c"}}`
	i.bindRole(t, "boss", "cluster-admin")
	i.edits(t, "tenant", "b")
	node := i.client(i.user(t, "system:node:n1", "system:nodes"))
	eventually(t, "the lease of a node", func() error {
		code, answer, err := i.ask(node, "POST", leases+"kube-node-lease/leases", `{"metadata":{"name":"n1"},"spec":{"holderIdentity":"n1"}}`)
		if err == nil && code != nethttp.StatusCreated && code != nethttp.StatusConflict {
			err = fmt.Errorf("%d %s", code, answer)
		}
		return err
	})
	all := []victim{
		{"an administrator of system:masters", "POST", maps, configMap, i.admin, nil},
		{"another administrator", "POST", maps, configMap, i.client(i.user(t, "boss")), nil},
		{"another tenant", "POST", maps, configMap, i.client(i.user(t, "tenant")), nil},
		{"a user without rights", "POST", review, `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, i.client(i.user(t, "jane")), nil},
		{"kube-controller-manager", "POST", leases + "kube-system/leases", lease, i.client(i.user(t, "system:kube-controller-manager")), nil},
		{"a node", "PATCH", leases + "kube-node-lease/leases/n1", `{"spec":{"leaseDurationSeconds":40}}`, node, []string{"Content-Type: application/merge-patch+json"}},
	}
	for _, v := range all {
		eventually(t, v.name+" is served", func() error {
			code, answer, err := i.ask(v.client, v.method, v.path, v.body, v.header...)
			if err == nil && code >= 300 {
				err = fmt.Errorf("%d %s", code, answer)
			}
			return err
		})
	}
	return all
}

// written has each victim write n times. It returns the median times, and how many requests were not
// served.
func (i *installation) written(t *testing.T, all []victim, n int) (medians map[string]time.Duration, refused int) {
	t.Helper()
	medians = map[string]time.Duration{}
	for _, v := range all {
		var took []time.Duration
		var last string
		failed := 0
		for range n {
			began := time.Now()
			if code, answer, err := i.ask(v.client, v.method, v.path, v.body, v.header...); err != nil || code >= 300 {
				failed++
				last = fmt.Sprint(code, answer, err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		medians[v.name], refused = took[n/2], refused+failed
		if failed > 0 {
			t.Errorf("%s: %d of %d writes are not served, the last: %s", v.name, failed, n, last)
		}
	}
	return medians, refused
}

// While fifty users without rights, and then the editor of one namespace as many of its service
// accounts, have bodies awaited that never come, all others write: administrators, tenants,
// controllers and nodes.
func TestBodiesThatNeverCome(t *testing.T) {
	up, err := testtools.Launch(t.TempDir(), "--authorization-mode=Node,RBAC")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.Stop(); err != nil {
			t.Error(err)
		}
	})
	i, err := newInstallation(up)
	if err != nil {
		t.Fatal(err)
	}
	i.edits(t, "editor", "a")
	victims := i.victims(t)
	const writes = 20
	quiet, _ := i.written(t, victims, writes)
	for name, attack := range map[string]func(ctx context.Context, all *sync.WaitGroup){
		"fifty users without rights": func(ctx context.Context, all *sync.WaitGroup) {
			for n := range 50 {
				i.hold(ctx, all, i.user(t, fmt.Sprint("hostile-", n)), bodiesThatWait/50, "")
			}
		},
		"an editor as 20 service accounts": func(ctx context.Context, all *sync.WaitGroup) {
			editor := i.user(t, "editor")
			for n := range 20 {
				i.hold(ctx, all, editor, bodiesThatWait/20, fmt.Sprint("system:serviceaccount:a:none", n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			attack(ctx, &all)
			const full = `apiserver_current_inflight_requests{request_kind="client"} 600`
			eventually(t, "as many bodies are awaited as may be", func() error { return i.answers("/metrics", nethttp.StatusOK, full) })
			beside, refused := i.written(t, victims, writes)
			t.Logf("%d of %d writes of others are not served", refused, writes*len(victims))
			for process, peak := range i.peaks(t) {
				if peak > maxMemory {
					t.Errorf("%s has taken %d MB", process, peak>>20)
				}
			}
			for _, v := range victims {
				t.Logf("%s: median %v, %.1f times the quiet one", v.name, beside[v.name], float64(beside[v.name])/float64(quiet[v.name]))
			}
		})
	}
}
