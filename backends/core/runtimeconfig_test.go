package core

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"portico/backends/core/kinds"
	"portico/backends/process"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/etcd"
)

func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	all := kinds.All(kinds.Config{})
	const deployments, v1, v2 = "apps/v1 deployments", "autoscaling/v1 horizontalpodautoscalers", "autoscaling/v2 horizontalpodautoscalers"
	const stays = "v1,admissionregistration.k8s.io/v1=true,discovery.k8s.io/v1=1"
	for config, want := range map[string]struct {
		on, off []string
		err     string
	}{
		"":                              {on: []string{deployments, v1, v2}},
		"api/all=true,api/beta=false":   {on: []string{deployments, v1, v2}},
		"api/beta=true,api/alpha=true":  {on: []string{deployments}},
		"apps/v1=false":                 {on: []string{v1, v2}, off: []string{deployments, "apps/v1 statefulsets"}},
		"apps/v1/deployments=false":     {on: []string{"apps/v1 statefulsets"}, off: []string{deployments}},
		"/v1/pods=false":                {on: []string{"v1 services"}, off: []string{"v1 pods"}},
		"autoscaling/v2=false":          {on: []string{v1}, off: []string{v2}},
		"apps/v1=false,apps/v1=true":    {on: []string{deployments}},
		"api/ga=false,apps/v1," + stays: {on: []string{deployments, "v1 pods"}, off: []string{v1, v2}},
		"apps/v1/deployments=true,api/all=false," + stays: {on: []string{deployments}, off: []string{"apps/v1 statefulsets"}},
		"api/all=false,apps/v1,batch/v1":                  {on: []string{deployments, "batch/v1 jobs"}, off: []string{"v1 pods", "policy/v1 poddisruptionbudgets"}},
		"api/all=false":                                   {err: "nothing is left: switch on a group/version of apps, autoscaling, batch, coordination.k8s.io, or v1"},
		"/v1/secrets=false":                               {err: "secrets cannot be switched off: the gateway and the CRD server need it"},
		"/v1/namespaces=false":                            {err: "needs v1 in the same process"},
		"api/all=false,policy/v1,apps/v1":                 {err: "poddisruptionbudgets.policy needs v1 in the same process"},
		"api/all=":                                        {err: "invalid value api/all=: must be true or false"},
		"apps/v1=maybe":                                   {err: "invalid value of apps/v1: maybe: must be true or false"},
		"apps/v2=true":                                    {err: "unknown group/version apps/v2: the core server has admissionregistration.k8s.io/v1, apps/v1, "},
		"storage.k8s.io/v1beta1":                          {err: "unknown group/version storage.k8s.io/v1beta1"},
		"api/legacy=true":                                 {err: "unknown group/version api/legacy"},
		"apps/v1/Deployments=false":                       {err: "unknown resource apps/v1/Deployments"},
		"apps/v1/deployments/status":                      {err: "unknown group/version apps/v1/deployments/status"},
		"=true":                                           {err: "unknown group/version "},
	} {
		var items []string
		if config != "" {
			items = strings.Split(config, ",")
		}
		served, err := servedKinds(all, items)
		if (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: error %v, want %q", config, err, want.err)
		}
		if err != nil {
			continue
		}
		var names []string
		for _, k := range served {
			for _, v := range k.Versions {
				names = append(names, strings.TrimPrefix(k.Group+"/"+v+" "+k.Resource, "/"))
			}
		}
		for _, name := range want.on {
			if !slices.Contains(names, name) {
				t.Errorf("%s: %s is not served", config, name)
			}
		}
		for _, name := range want.off {
			if slices.Contains(names, name) {
				t.Errorf("%s: %s is served", config, name)
			}
		}
	}
}

// The only core server of an installation keeps v1, and one without v1 needs a gateway.
func TestShardNeedsAnother(t *testing.T) {
	t.Parallel()
	items := []string{"api/all=false", "apps/v1"}
	if err := CheckRuntimeConfig(items); err == nil || err.Error() != "v1 cannot be switched off: no other core server has it" {
		t.Errorf("alone: %v", err)
	}
	_, err := New(Config{Config: process.Config{Etcd: etcd.Config{Endpoints: []string{"unix:///nowhere"}}}, RuntimeConfig: items})
	if err == nil || !strings.Contains(err.Error(), "a server without v1 reads namespaces through the gateway; set --gateway") {
		t.Errorf("without a gateway: %v", err)
	}
}

// What is switched off is 404. A version that is left serves the objects
// in the form that they are stored in.
func TestSwitchedOffVersionsAreNotServed(t *testing.T) {
	t.Parallel()
	c := running(t, Config{RuntimeConfig: []string{"apps/v1=false", "autoscaling/v2=false"}})
	for _, path := range []string{"/apis/apps/v1/deployments", "/apis/autoscaling/v2/horizontalpodautoscalers"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		c.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
		if w.Code != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, w.Code)
		}
	}
	createNamespace(t, c, "n")
	c.must(t, http.MethodPost, "/apis/autoscaling/v1/namespaces/n/horizontalpodautoscalers", map[string]any{
		"metadata": map[string]any{"name": "h"},
		"spec":     map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3},
	}, nil)
	o, err := c.find("autoscaling", "horizontalpodautoscalers").Store.List(t.Context(), resource.ListOptions{})
	if err != nil || len(o.Items) != 1 || o.Items[0].APIVersion != "autoscaling/v2" {
		t.Errorf("stored are %+v, %v", o, err)
	}
	c.must(t, http.MethodDelete, "/api/v1/namespaces/n", nil, nil)
	await.Until(t, "its objects go with the namespace", func() bool {
		o, err := c.find("autoscaling", "horizontalpodautoscalers").Store.List(t.Context(), resource.ListOptions{})
		return err == nil && len(o.Items) == 0
	})
}
