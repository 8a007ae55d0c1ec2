package main

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// Dashboards find the metrics of the contract (1.6) where what they tell of
// happens: those of the storage in each process that has one.
func TestMetricsAreShown(t *testing.T) {
	up := sharedInstallation(t)
	client := httpClient(t, up.config(t))
	for _, path := range []string{"/api/v1/namespaces", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices"} {
		if code, body := get(t, client, up.endpoint+path, ""); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	// Nothing is counted of what never was: an APIService that nobody answers.
	const lost = "v1.lost.example.com"
	code, body := up.post(t, "/apis/apiregistration.k8s.io/v1/apiservices", []byte(`{"metadata":{"name":"`+lost+`"},"spec":{"group":"lost.example.com","version":"v1",
		"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"lost"}}}`))
	if code != http.StatusCreated {
		t.Fatalf("create %s: %d %s", lost, code, body)
	}
	defer up.mustKubectl(t, "delete", "apiservice", lost)
	eventually(t, lost+" is counted", func() error {
		if _, text := get(t, client, up.endpoint+"/metrics", ""); !strings.Contains(text, `aggregator_unavailable_apiservice_total{name="`+lost+`"`) {
			return errors.New("it is not")
		}
		return nil
	})
	storage := []string{
		"apiserver_resource_objects", "apiserver_storage_objects", "apiserver_resource_size_estimate_bytes", "apiserver_storage_size_bytes",
		"etcd_request_duration_seconds", "etcd_requests_total", "etcd_lease_object_counts", "etcd_bookmark_total",
		"apiserver_watch_cache_consistent_read_total", "apiserver_watch_cache_initializations_total", "apiserver_watch_cache_resource_version",
	}
	requests := []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_response_sizes",
		"apiserver_current_inflight_requests", "apiserver_tls_handshake_errors_total",
	}
	watches := []string{
		"apiserver_longrunning_requests", "apiserver_watch_events_total", "apiserver_watch_events_sizes",
	}
	gateway := []string{"aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total"}
	for server, names := range map[string][][]string{
		"core":    {requests, watches, storage},
		"crd":     {requests, storage},
		"gateway": {requests, storage, gateway},
	} {
		t.Run(server, func(t *testing.T) {
			var text string
			if server == "gateway" {
				_, text = get(t, client, up.endpoint+"/metrics", "")
			} else {
				text = up.metrics(t, server)
			}
			for _, group := range names {
				for _, name := range group {
					if !regexp.MustCompile(`(?m)^` + name + `(_count)?(\{| )`).MatchString(text) {
						t.Errorf("%s does not show %s", server, name)
					}
				}
			}
		})
	}
}
