package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
)

const (
	roleStaticServer = "static-server"
	smallObject      = 200 // bytes
	staticGroup      = "rates.bench.example.com"
	staticPath       = "/apis/" + staticGroup + "/v1/namespaces/default/widgets"
)

// serveStatic runs the API server that is registered with the gateway: two
// objects of fixed size, a watch without events, and discovery.
func serveStatic(cfg childConfig) (childAddress, error) {
	mux := http.NewServeMux()
	mux.Handle(staticPath+"/small", readyBytes(staticObject(smallObject)))
	mux.Handle(staticPath+"/large", readyBytes(staticObject(int(cfg.Object))))
	mux.HandleFunc(staticPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
		<-r.Context().Done()
	})
	const version = `{"groupVersion":"` + staticGroup + `/v1","version":"v1"}`
	mux.Handle("/apis", readyBytes([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"`+staticGroup+`","versions":[`+version+`],"preferredVersion":`+version+`}]}`)))
	mux.Handle("/apis/"+staticGroup+"/v1", readyBytes([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+staticGroup+`/v1","resources":[`+
		`{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get","list","watch"]}]}`)))
	return listenTLS(mux, protocols(true))
}

// staticObject returns a JSON object of size bytes.
func staticObject(size int) []byte {
	const head, tail = `{"apiVersion":"` + staticGroup + `/v1","kind":"Widget","metadata":{"name":"static","namespace":"default"},"spec":{"text":"`, `"}}`
	return []byte(head + strings.Repeat("v", max(0, size-len(head)-len(tail))) + tail)
}

type object = map[string]any

// register registers the static server as a Backend and returns the token of a
// service account that may read its objects, once the gateway serves them.
func register(ctx context.Context, admin *client, backend childAddress) (token string, err error) {
	const rbac, accounts = "/apis/rbac.authorization.k8s.io/v1/", "/api/v1/namespaces/default/serviceaccounts"
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate}))
	meta := object{"name": "bench-rates"}
	var answer []byte
	for _, create := range []struct {
		path string
		body object
	}{
		{"/apis/gateway.portico.dev/v1alpha1/backends", object{"metadata": meta, "spec": object{
			"endpoints": []object{{"url": "https://" + backend.Address}}, "tls": object{"caBundle": bundle}, "autoRegister": object{"groups": []string{staticGroup}},
		}}},
		{accounts, object{"metadata": meta}},
		{rbac + "clusterroles", object{"metadata": meta, "rules": []object{
			{"apiGroups": []string{staticGroup}, "resources": []string{"widgets"}, "verbs": []string{"get", "list", "watch"}},
		}}},
		{rbac + "clusterrolebindings", object{
			"metadata": meta, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-rates"},
			"subjects": []object{{"kind": "ServiceAccount", "namespace": "default", "name": "bench-rates"}},
		}},
		{accounts + "/bench-rates/token", object{"spec": object{"expirationSeconds": 3600}}},
	} {
		body, err := json.Marshal(create.body)
		if err != nil {
			return "", err
		}
		err = retryWhileStarting(ctx, pollSlow, func() (err error) {
			answer, err = admin.read(ctx, 0, request{method: "POST", path: create.path, contentType: jsonType, body: body})
			return err
		})
		if err != nil {
			return "", fmt.Errorf("create at %s: %w", create.path, err)
		}
	}
	var review struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &review); err != nil || review.Status.Token == "" {
		return "", fmt.Errorf("read token: %v", err)
	}
	return review.Status.Token, retryWhileStarting(ctx, pollSlow, func() error {
		_, err := admin.discard(ctx, 0, request{path: staticPath + "/small"})
		return err
	})
}
