package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// ratesOptions are the flags of "bench rates".
type ratesOptions struct {
	portico       string
	rounds, size  int
	turn, timeout time.Duration
}

// newRatesCommand returns the command that measures the gateway as a proxy.
func newRatesCommand() *cobra.Command {
	o := ratesOptions{rounds: 5, size: 3500, turn: 4 * time.Second, timeout: 15 * time.Minute}
	cmd := &cobra.Command{
		Use:   "rates --portico PROGRAM",
		Short: "Measure the gateway as a proxy beside a bare ReverseProxy, with h2load and wrk",
		Long: "Measure requests per second and latency of the gateway (token, RBAC, metrics, audit log) and of a bare ReverseProxy before\n" +
			"the same static server, with h2load over HTTP/2 and wrk over HTTP/1.1, in turns. TLS on both\n" +
			"hops. Requires the Debian packages nghttp2-client and wrk.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.rounds < 1 || o.size < smallObject || o.turn < time.Second {
				return fmt.Errorf("rates needs --portico, --rounds of at least 1, --size of at least %d and --turn of at least 1s", smallObject)
			}
			if err := findTools(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("it took longer than --limit=%v", o.timeout))
			defer cancel()
			return measureRates(ctx, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start an installation with, in a temporary folder")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "turns of each server per protocol and size")
	fs.DurationVar(&o.turn, "turn", o.turn, "duration of a turn, in whole seconds")
	fs.IntVar(&o.size, "size", o.size, "bytes of the larger answer")
	fs.DurationVar(&o.timeout, "limit", o.timeout, "time limit of the run")
	return cmd
}

// server is a server under test. token is empty where none is needed.
type server struct {
	name, address, token string
	turns                []turnResult
}

// measureRates starts the servers, measures and writes the tables to out.
func measureRates(ctx context.Context, o *ratesOptions, out, errOut io.Writer) (err error) {
	progress := &progress{out: errOut, began: time.Now()}
	own := &options{portico: o.portico, connections: 1, flags: auditFlags}
	installation, err := startInstallation(ctx, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installation.stop()) }()
	admin, err := openTarget(ctx, own)
	if err != nil {
		return err
	}
	defer admin.close()
	backend, err := startChild(ctx, roleStaticServer, childConfig{Object: int64(o.size)})
	if err != nil {
		return fmt.Errorf("start static server: %w", err)
	}
	defer backend.stop()
	bare, err := startChild(ctx, "chain-proxy", childConfig{Upstream: backend.at, HTTP1: true})
	if err != nil {
		return fmt.Errorf("start ReverseProxy: %w", err)
	}
	defer bare.stop()
	token, err := register(ctx, admin, backend.at)
	if err != nil {
		return err
	}
	progress.say("started an installation in %s", installation.dir)
	servers := []*server{
		{name: "ReverseProxy", address: "https://" + bare.at.Address}, {name: "gateway", address: admin.base, token: token},
		{name: "static server", address: "https://" + backend.at.Address},
	}
	t := table(out, "protocol, answer", "server", "requests/s", "p50, ms", "p99, ms", "share of ReverseProxy's rate", "lowest–highest")
	for _, tool := range []loadTool{wrk, h2load} {
		for _, object := range []struct {
			name string
			size int
		}{{"small", smallObject}, {"large", o.size}} {
			what := fmt.Sprintf("%s, %d B", tool.protocol, object.size)
			if err := measureTurns(ctx, o, servers, tool, staticPath+"/"+object.name, progress, what); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			for _, s := range servers {
				fmt.Fprintf(t, "%s\t%s\n", what, s.row(servers[0]))
			}
		}
	}
	return t.Flush()
}

// measureTurns runs tool against each server in turns. The order changes from
// round to round, so that none always follows the same other one.
func measureTurns(ctx context.Context, o *ratesOptions, servers []*server, tool loadTool, path string, progress *progress, what string) error {
	for _, s := range servers {
		s.turns = nil
	}
	for round := range o.rounds {
		for i := range servers {
			s := servers[(round+i)%len(servers)]
			result, err := tool.run(ctx, s.address+path, s.token, o.turn)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			s.turns = append(s.turns, result)
			progress.say("%s, %s, round %d of %d: %.0f requests/s", what, s.name, round+1, o.rounds, result.rate)
		}
	}
	return nil
}

// row returns the medians over the turns, and the rate as a share of yard's rate
// of the same round.
func (s *server) row(yard *server) string {
	var rates, halves, slowest, shares []float64
	for i, t := range s.turns {
		rates, halves, slowest = append(rates, t.rate), append(halves, milliseconds(t.p50)), append(slowest, milliseconds(t.p99))
		shares = append(shares, 100*t.rate/yard.turns[i].rate)
	}
	return fmt.Sprintf("%s\t%.0f\t%.2f\t%.2f\t%.0f %%\t%.0f–%.0f %%", s.name, median(rates), median(halves), median(slowest),
		median(shares), slices.Min(shares), slices.Max(shares))
}

// median sorts all and returns its middle.
func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

const (
	roleStaticServer = "static-server"
	smallObject      = 200 // bytes
	staticGroup      = "rates.bench.example.com"
	staticPath       = "/apis/" + staticGroup + "/v1/namespaces/default/widgets"
)

// serveStatic runs the server that is registered with the gateway: an API with two objects
// of fixed size and discovery, and a list with an OpenAPI document.
func serveStatic(cfg childConfig) (childAddress, error) {
	mux := http.NewServeMux()
	mux.Handle(staticPath+"/small", readyBytes(staticObject(smallObject)))
	mux.Handle(staticPath+"/large", readyBytes(staticObject(int(cfg.Object))))
	mux.Handle("/openapi.json", readyBytes([]byte(`{"openapi":"3.0.0","info":{"title":"Widgets","version":"1"},"paths":{"/widgets":{"get":{`+
		`"responses":{"200":{"description":"all","content":{"application/json":{"schema":{"type":"array","items":{"$ref":"#/components/schemas/Widget"}}}}}}}}},`+
		`"components":{"schemas":{"Widget":{"type":"object","properties":{"name":{"type":"string"}}}}}}`)))
	mux.Handle("/widgets", readyBytes([]byte("[]")))
	const version = `{"groupVersion":"` + staticGroup + `/v1","version":"v1"}`
	mux.Handle("/apis", readyBytes([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"`+staticGroup+`","versions":[`+version+`],"preferredVersion":`+version+`}]}`)))
	mux.Handle("/apis/"+staticGroup+"/v1", readyBytes([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+staticGroup+`/v1","resources":[`+
		`{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get","list"]}]}`)))
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
			{"apiGroups": []string{staticGroup}, "resources": []string{"widgets"}, "verbs": []string{"get", "list"}},
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
