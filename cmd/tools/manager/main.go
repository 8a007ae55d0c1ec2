// Command manager is a small controller of the kind that most people write:
// controller-runtime, one custom resource, leader election, events, server-side
// apply, and an informer of metadata only. The end-to-end tests run it, as a
// process of its own with the rights of a service account, against Portico.
//
// It lives in the module of the test tools, so that the versions that
// controller-runtime asks for do not move Portico's.
//
// Runs in: tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const name = "greeter"

func main() {
	namespace := flag.String("namespace", "", "the namespace to work in")
	flag.Parse() // also --kubeconfig, which controller-runtime knows
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "manager: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("make scheme: %w", err)
	}
	addToScheme(scheme)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection: true, LeaderElectionID: name, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), events: mgr.GetEventRecorder(name)}
	// Of ConfigMaps only the metadata is watched, which has their owners.
	err = ctrl.NewControllerManagedBy(mgr).For(&Greeting{}).Owns(&corev1.ConfigMap{}, builder.OnlyMetadata).Complete(r)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	return mgr.Start(ctx)
}

// reconciler keeps a ConfigMap for every Greeting.
type reconciler struct {
	client client.Client
	events events.EventRecorder
}

// Reconcile makes the ConfigMap say what the Greeting says, and the Greeting's
// status say so.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &Greeting{}
	if err := r.client.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if g.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	owner := metav1ac.OwnerReference().WithAPIVersion(groupVersion.String()).WithKind("Greeting").
		WithName(g.Name).WithUID(g.UID).WithController(true).WithBlockOwnerDeletion(true)
	want := corev1ac.ConfigMap(g.Name, g.Namespace).WithOwnerReferences(owner).WithData(map[string]string{"text": g.Spec.Text})
	if err := r.client.Apply(ctx, want, client.FieldOwner(name), client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply ConfigMap: %w", err)
	}
	if g.Status.ObservedGeneration == g.Generation && meta.IsStatusConditionTrue(g.Status.Conditions, "Ready") {
		return ctrl.Result{}, nil
	}
	g.Status.ObservedGeneration, g.Status.ConfigMap = g.Generation, g.Name
	meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied", Message: "the ConfigMap says it", ObservedGeneration: g.Generation,
	})
	if err := r.client.Status().Update(ctx, g); err != nil {
		return ctrl.Result{}, fmt.Errorf("update status: %w", err)
	}
	r.events.Eventf(g, nil, corev1.EventTypeNormal, "Applied", "Apply", "generation %d is in ConfigMap %s", g.Generation, g.Name)
	return ctrl.Result{}, nil
}
