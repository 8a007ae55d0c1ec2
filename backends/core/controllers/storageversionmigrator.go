package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

type migration = storagemigrationv1.StorageVersionMigration

const (
	migratorName = "storage-version-migrator-controller"
	// migrationRunner is the field manager of the status of definitions.
	migrationRunner = "migration-runner-controller"
	migrationPage   = 500
	// migrationPatience is how long after its creation a migration waits for its resource to be
	// in discovery.
	migrationPatience = time.Minute
)

// storageVersionMigrator writes the objects of a resource again, unchanged, so that they are
// stored in the present storage version. StorageVersionMigrations of one resource run one after
// the other. While one runs, the definition of a custom resource has the condition
// StorageMigrating; afterwards its status.storedVersions has the storage version alone.
func storageVersionMigrator(ctx context.Context, env *Env) error {
	client, err := dynamic.NewForConfig(env.Gateway)
	if err != nil {
		return fmt.Errorf("make client of definitions: %w", err)
	}
	m := &migrator{Env: env, definitions: client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))}
	queue := env.NewQueue("storage_version_migrations")
	Handle(env, env.Informers.Storagemigration().V1().StorageVersionMigrations().Informer(), func(old, cur *migration) {
		if cur == nil {
			cur = old
		}
		queue.Add(migrated(cur).String())
	})
	return env.Work(ctx, Loop{Queue: queue, Workers: 5, Sync: func(ctx context.Context, _, resource string) error { return m.sync(ctx, resource) }})
}

type migrator struct {
	*Env
	definitions dynamic.ResourceInterface
}

func migrated(m *migration) schema.GroupResource { return schema.GroupResource(m.Spec.Resource) }

func hasState(m *migration, state storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(state))
}

func ended(m *migration) bool {
	return hasState(m, storagemigrationv1.MigrationSucceeded) || hasState(m, storagemigrationv1.MigrationFailed)
}

// sync takes the migrations of one resource a step further. Every step writes a status, and the
// event of that write causes the next step.
func (m *migrator) sync(ctx context.Context, resource string) error {
	list, err := m.Client.StoragemigrationV1().StorageVersionMigrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(m migration) bool { return migrated(&m).String() != resource })
	slices.SortFunc(list.Items, func(a, b migration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var active, next *migration
	for i := range list.Items {
		switch it := &list.Items[i]; {
		case hasState(it, storagemigrationv1.MigrationRunning) && ended(it):
			if err := m.finish(ctx, it); err != nil {
				return err
			}
		case hasState(it, storagemigrationv1.MigrationRunning):
			active = cmp.Or(active, it)
		case !ended(it):
			next = cmp.Or(next, it)
		}
	}
	switch {
	case active != nil:
		return m.advance(ctx, active)
	case next != nil:
		return m.begin(ctx, next)
	}
	return nil
}

// migrationCondition is a condition of a migration.
func migrationCondition(t storagemigrationv1.MigrationConditionType, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: status, Reason: reason, Message: message}
}

// runningMigration is the condition of a migration that runs; left of total objects are to be written.
func runningMigration(left, total int, transient error) metav1.Condition {
	message := "The migration is running"
	switch {
	case left > 0:
		message += fmt.Sprintf(", %d/%d objects not yet migrated", left, total)
	case total > 0:
		message += fmt.Sprintf(", %d objects verified migrated", total)
	}
	if transient != nil {
		message += "; transient error: " + transient.Error()
	}
	return migrationCondition(storagemigrationv1.MigrationRunning, metav1.ConditionTrue, "MigrationRunning", message)
}

// record writes the status of a migration with these conditions, if they are new.
func (m *migrator) record(ctx context.Context, it *migration, conditions ...metav1.Condition) error {
	changed := false
	for _, c := range conditions {
		changed = meta.SetStatusCondition(&it.Status.Conditions, c) || changed
	}
	if !changed {
		return nil
	}
	_, err := m.Client.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, it, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func (m *migrator) fail(ctx context.Context, it *migration, message string, more ...metav1.Condition) error {
	failed := migrationCondition(storagemigrationv1.MigrationFailed, metav1.ConditionTrue, "StorageVersionMigrationFailed", message)
	return m.record(ctx, it, append(more, failed)...)
}

// begin marks a migration as running.
func (m *migrator) begin(ctx context.Context, it *migration) error {
	err := m.markDefinition(ctx, migrated(it), func(*apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionCondition, bool) {
		return apiextensionsv1.CustomResourceDefinitionCondition{
			Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", Message: fmt.Sprintf("Migration %s is running", it.Name),
		}, false
	})
	if err != nil {
		return err
	}
	return m.record(ctx, it, runningMigration(0, 0, nil))
}

// finish marks a migration that has ended as not running. The definition of a custom resource
// then has no other stored version than the present one, if its spec did not change meanwhile.
func (m *migrator) finish(ctx context.Context, it *migration) error {
	err := m.markDefinition(ctx, migrated(it), func(d *apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionCondition, bool) {
		unchanged := slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.StorageMigrating && c.ObservedGeneration == d.Generation
		})
		c := apiextensionsv1.CustomResourceDefinitionCondition{Status: apiextensionsv1.ConditionFalse, Reason: "MigrationFailed", Message: "The migration has failed"}
		if hasState(it, storagemigrationv1.MigrationSucceeded) {
			c.Reason, c.Message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
			if unchanged {
				c.Message = "The migration has succeeded and the stored versions have been updated"
			}
		}
		return c, unchanged && c.Reason == "MigrationSucceeded"
	})
	if err != nil {
		return err
	}
	return m.record(ctx, it, migrationCondition(storagemigrationv1.MigrationRunning, metav1.ConditionFalse, "MigrationCompleted", "Migration completed"))
}

// markDefinition sets the condition StorageMigrating of the definition of a resource, and with
// only status.storedVersions to the storage version. Resources without definition have none.
func (m *migrator) markDefinition(ctx context.Context, resource schema.GroupResource,
	mark func(*apiextensionsv1.CustomResourceDefinition) (c apiextensionsv1.CustomResourceDefinitionCondition, only bool),
) error {
	got, err := m.definitions.Get(ctx, resource.Resource+"."+resource.Group, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	var d apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &d); err != nil {
		return fmt.Errorf("read definition of %s: %w", resource, err)
	}
	c, only := mark(&d)
	status := map[string]any{"conditions": []any{map[string]any{
		"type": string(apiextensionsv1.StorageMigrating), "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": m.Clock.Now().UTC().Format(time.RFC3339), "observedGeneration": d.Generation,
	}}}
	if i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage }); only && i >= 0 {
		status["storedVersions"] = []any{d.Spec.Versions[i].Name}
	}
	// With the resourceVersion: the generation is that of the definition that was read.
	_, err = m.definitions.ApplyStatus(ctx, d.Name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": d.Name, "resourceVersion": d.ResourceVersion}, "status": status,
	}}, metav1.ApplyOptions{FieldManager: migrationRunner, Force: true})
	return ignoreNotFound(err)
}

// advance takes a running migration to its end. First it records the resourceVersion at which
// it begins: objects that were written later are stored in the storage version already.
func (m *migrator) advance(ctx context.Context, it *migration) error {
	gvr, gvk, refused, err := m.find(migrated(it))
	switch {
	case err != nil:
		return err
	case refused != "" && it.CreationTimestamp.Add(migrationPatience).After(m.Clock.Now()):
		return fmt.Errorf("migration %s: %s", it.Name, refused)
	case refused != "":
		return m.fail(ctx, it, refused)
	case it.Status.ResourceVersion != "":
		return m.migrate(ctx, it, gvr, gvk)
	}
	list, err := m.Metadata.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("get the latest resourceVersion of %s: %w", gvr.GroupResource(), err)
	}
	it.Status.ResourceVersion = list.ResourceVersion
	if _, err := resourceversion.CompareResourceVersion(list.ResourceVersion, list.ResourceVersion); err != nil {
		it.Status.ResourceVersion = ""
		return m.fail(ctx, it, fmt.Sprintf("latest resourceVersion for %s is not valid: %v", gvr, err))
	}
	_, err = m.Client.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, it, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// migrationVerbs are what a resource has to have to be migrated.
var migrationVerbs = []string{"update", "patch", "list"}

// find returns a resource in its preferred version, and its kind, or why it cannot be migrated.
// It reads discovery.
func (m *migrator) find(resource schema.GroupResource) (gvr schema.GroupVersionResource, gvk schema.GroupVersionKind, refused string, err error) {
	lists, err := m.Client.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return gvr, gvk, "", err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource })
		if err != nil || gv.Group != resource.Group || i < 0 {
			continue
		}
		r := list.APIResources[i]
		gvr, gvk = gv.WithResource(r.Name), gv.WithKind(r.Kind)
		for _, verb := range migrationVerbs {
			if !slices.Contains(r.Verbs, verb) {
				return gvr, gvk, fmt.Sprintf("resource %q does not support discovery operations: %v", gvr, migrationVerbs), nil
			}
		}
		return gvr, gvk, "", nil
	}
	return gvr, gvk, "resource does not exist in discovery", nil
}

// migrate writes the objects of a resource that were not written since the migration began.
func (m *migrator) migrate(ctx context.Context, it *migration, gvr schema.GroupVersionResource, kind schema.GroupVersionKind) error {
	const unhandled = "migration encountered unhandled error: "
	old, total, err := m.unmigrated(ctx, it, gvr)
	if err != nil {
		return err
	}
	for i, o := range old {
		err := m.rewrite(ctx, gvr, kind, o)
		switch left := len(old) - i; {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case transient(err):
			if failed := m.record(ctx, it, runningMigration(left, total, err)); failed != nil {
				return failed
			}
			return err
		default:
			return m.fail(ctx, it, fmt.Sprintf("%d/%d not yet migrated. %s%v", left, total, unhandled, err), runningMigration(left, total, nil))
		}
	}
	return m.record(ctx, it, runningMigration(0, total, nil),
		migrationCondition(storagemigrationv1.MigrationSucceeded, metav1.ConditionTrue, "StorageVersionMigrationSucceeded", "Migration completed"))
}

// objectState identifies a state of an object.
type objectState struct{ namespace, name, resourceVersion string }

// unmigrated lists the objects that were not written since the migration began, and counts all.
func (m *migrator) unmigrated(ctx context.Context, it *migration, gvr schema.GroupVersionResource) (old []objectState, total int, err error) {
	opts := metav1.ListOptions{Limit: migrationPage}
	for {
		page, err := m.Metadata.Resource(gvr).List(ctx, opts)
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			total++
			order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, it.Status.ResourceVersion)
			if err != nil {
				return nil, 0, fmt.Errorf("compare the resourceVersion of %s %s: %w", gvr.GroupResource(), Key(o), err)
			}
			if order <= 0 {
				old = append(old, objectState{o.Namespace, o.Name, o.ResourceVersion})
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return old, total, nil
		}
	}
}

// rewrite patches an object without changing it. An object that is gone or was changed needs
// no migration.
func (m *migrator) rewrite(ctx context.Context, gvr schema.GroupVersionResource, kind schema.GroupVersionKind, o objectState) error {
	apiVersion, name := kind.ToAPIVersionAndKind()
	body, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": name, "metadata": map[string]any{"resourceVersion": o.resourceVersion}})
	if err != nil {
		return err
	}
	_, err = m.Metadata.Resource(gvr).Namespace(o.namespace).Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: migratorName})
	if apierrors.IsConflict(err) {
		return nil
	}
	return ignoreNotFound(err)
}

// transient reports whether a write that failed is to be repeated.
func transient(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}
