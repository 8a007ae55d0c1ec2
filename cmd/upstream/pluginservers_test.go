package upstream

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"portico/backends/core/kinds"
	"portico/backends/core/plugins"
	"portico/internal/testing/memstore"
	"portico/resource"
	porticorest "portico/resource/rest"
)

// ourPlugin is a plugin of Portico.
type ourPlugin struct {
	resources map[schema.GroupResource]*porticorest.Resource
	plugin    porticorest.Admission
	warnings  []string
}

// newOurs returns a plugin that finds objects, which then have what a server sets, and whose users have
// the rights of authorize.
func newOurs(t *testing.T, name, config string, objects []porticorest.Object, authorize func(context.Context, *resource.Action) error) *ourPlugin {
	t.Helper()
	o := &ourPlugin{resources: map[schema.GroupResource]*porticorest.Resource{}}
	storage := memstore.New()
	for _, k := range kinds.All(kinds.Config{}) {
		o.resources[k.GroupResource()] = &porticorest.Resource{Kind: k, Store: storage.Store(&k.Info)}
	}
	for i, obj := range objects {
		gvks, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.resources {
			if r.GroupKind() == gvks[0].GroupKind() {
				if objects[i], err = porticorest.CreateObject(t.Context(), r, obj); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	options := plugins.Options{Enable: []string{name}, Disable: slices.DeleteFunc(plugins.Names(), func(n string) bool { return n == name })}
	if config != "" {
		options.ConfigFile = filepath.Join(t.TempDir(), "config.yaml")
		text := fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{"name":%q,"configuration":%s}]}`, name, config)
		if err := os.WriteFile(options.ConfigFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	o.plugin, err = plugins.New(plugins.Config{
		Options: options,
		Resource: func(group, res string) *porticorest.Resource {
			return o.resources[schema.GroupResource{Group: group, Resource: res}]
		},
		Authorize: authorize,
		Warn:      func(_ context.Context, text string) { o.warnings = append(o.warnings, text) },
		Mapper:    meta.MultiRESTMapper{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *ourPlugin) do(w write) pluginOutcome {
	obj := w.ours.DeepCopyObject().(porticorest.Object)
	a := &porticorest.Attributes{
		Action: &resource.Action{Version: w.gvk.Version, Subresource: w.sub, User: &resource.User{Name: "admin"}}, Kind: w.kind, Operation: porticorest.Create,
		Object: obj, Key: resource.Key{Namespace: namespaceFor(w.kind), Name: obj.GetName()},
	}
	if w.ourOld != nil {
		a.Operation, a.Old = porticorest.Update, w.ourOld.DeepCopyObject()
	}
	o.warnings = nil
	err := o.plugin.Mutate(context.Background(), a)
	if err == nil {
		err = o.plugin.Validate(context.Background(), a)
	}
	out := pluginOutcome{Warnings: o.warnings}
	switch {
	case err != nil:
		out.Error = message(err)
	case !reflect.DeepEqual(obj, w.ours):
		data, err := w.kind.Codec.Encode(obj, w.gvk, runtime.ContentTypeJSON)
		if err != nil {
			panic(err)
		}
		out.Object = normal(data)
	}
	return out
}

// theirPlugin is a plugin of kube-apiserver.
type theirPlugin struct{ plugin admission.Interface }

func newTheirs(t *testing.T, name, config string, register func(*admission.Plugins), stored []porticorest.Object, authorize authorizer.Authorizer) *theirPlugin {
	t.Helper()
	var objects []runtime.Object
	for _, o := range stored {
		objects = append(objects, o)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	all := admission.NewPlugins()
	register(all)
	init := initializer.New(client, nil, factory, authorize, utilfeature.DefaultFeatureGate, compatibility.DefaultKubeEffectiveVersionForTest(), nil, nil)
	var plugin admission.Interface
	var err error
	if config == "" {
		plugin, err = all.InitPlugin(name, nil, init)
	} else {
		plugin, err = all.InitPlugin(name, bytes.NewReader([]byte(config)), init)
	}
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return &theirPlugin{plugin}
}

// do runs the plugin; not ok: it panics, because validation refuses the write before.
func (p *theirPlugin) do(w write) (out pluginOutcome, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	obj, operation, before := w.theirs.DeepCopyObject(), admission.Create, runtime.Object(nil)
	if w.theirOld != nil {
		operation, before = admission.Update, w.theirOld.DeepCopyObject()
	}
	attributes := admission.NewAttributesRecord(obj, before, w.gvk, namespaceFor(w.kind), w.ours.GetName(), w.kind.GVR(w.gvk.Version), w.sub, operation, nil, false, &user.DefaultInfo{Name: "admin"})
	var warned warnings
	ctx := warning.WithWarningRecorder(context.Background(), &warned)
	var err error
	if p.plugin.Handles(operation) {
		if m, ok := p.plugin.(admission.MutationInterface); ok {
			err = m.Admit(ctx, attributes, nil)
		}
		if v, ok := p.plugin.(admission.ValidationInterface); ok && err == nil {
			err = v.Validate(ctx, attributes, nil)
		}
	}
	out.Warnings = warned
	switch {
	case err != nil:
		out.Error = message(err)
	case !reflect.DeepEqual(obj, w.theirs):
		data, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(w.gvk.GroupVersion()), obj)
		if err != nil {
			panic(err)
		}
		out.Object = normal(data)
	}
	return out, true
}

// warnings are those of one write.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }
