// Command hosts is a controller of three versions of a custom resource, with their conversion
// webhook: controller-runtime, v1 as the hub, v1beta1 and v1alpha1 as spokes. Each version has a
// reconciler of its own, which says in the status what it has seen.
//
// It is in the module of the test tools, so that the dependencies of controller-runtime do not
// change those of Portico.
//
// Runs in: tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

func main() {
	port := flag.Int("port", 0, "the `port` of the webhook, at 127.0.0.1; it serves /convert, and with /calls the number of its calls")
	certificates := flag.String("cert-dir", "", "the `folder` of tls.crt and tls.key of the webhook")
	flag.Parse() // also --kubeconfig, a flag of controller-runtime
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *port, *certificates); err != nil {
		fmt.Fprintln(os.Stderr, "hosts: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, port int, certificates string) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates}),
	})
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	var calls atomic.Int64
	convert := conversion.NewWebhookHandler(scheme, mgr.GetConverterRegistry())
	mgr.GetWebhookServer().Register("/convert", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		convert.ServeHTTP(w, r)
	}))
	mgr.GetWebhookServer().Register("/calls", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, calls.Load()) }))
	for version, object := range map[string]func() host{
		"v1": func() host { return &HostV1{} }, "v1beta1": func() host { return &HostV1beta1{} }, "v1alpha1": func() host { return &HostV1alpha1{} },
	} {
		err := ctrl.NewControllerManagedBy(mgr).Named(version).For(object()).Complete(&reconciler{mgr.GetClient(), version, object})
		if err != nil {
			return fmt.Errorf("make controller of %s: %w", version, err)
		}
	}
	return mgr.Start(ctx)
}

// host is a Host in any version.
type host interface {
	client.Object
	// seen returns status.seen, what each reconciler has seen; address is that of the spec.
	seen() *map[string]string
	address() string
}

// reconciler says in the status of each Host what it sees in its version.
type reconciler struct {
	client  client.Client
	version string
	object  func() host
}

// Reconcile sets status.seen of the version to the address of the Host.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o := r.object()
	if err := r.client.Get(ctx, req.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	seen := o.seen()
	if o.GetDeletionTimestamp() != nil || (*seen)[r.version] == o.address() {
		return ctrl.Result{}, nil
	}
	if *seen == nil {
		*seen = map[string]string{}
	}
	(*seen)[r.version] = o.address()
	return ctrl.Result{}, r.client.Status().Update(ctx, o)
}
