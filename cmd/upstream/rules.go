package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"

	"portico/internal/testing/kindtest"
)

func init() {
	// As with --allow-privileged, which clusters set.
	capabilities.Setup(true, 0)
	klog.SetLogger(logr.Discard()) // The rules of kube-apiserver log what they do not expect.
}

// theirs are the rules of kube-apiserver.
type theirs struct {
	gvk         schema.GroupVersionKind
	gvr         schema.GroupVersionResource
	subresource string
	main        rest.RESTCreateStrategy
	strategy    rest.RESTUpdateStrategy
	// metadata is set to have the causes of metadata.
	metadata bool
}

// warnings are those of one write.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func (t theirs) context(w *warnings) context.Context {
	ctx := warning.WithWarningRecorder(context.Background(), w)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, APIGroup: t.gvr.Group, APIVersion: t.gvr.Version, Resource: t.gvr.Resource, Subresource: t.subresource,
	})
	namespace := ""
	if t.main.NamespaceScoped() {
		namespace = "default"
	}
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "admin"})
	return request.WithNamespace(ctx, namespace)
}

func (t theirs) decode(body []byte) (runtime.Object, error) {
	obj, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(body, &t.gvk, nil)
	return obj, err
}

func (t theirs) encode(obj runtime.Object) map[string]any {
	data, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(t.gvk.GroupVersion()), obj)
	if err != nil {
		panic(err)
	}
	return kindtest.Document(data)
}

// Create implements kindtest.Rules.
func (t theirs) Create(body []byte) kindtest.Outcome {
	obj, err := t.decode(body)
	if err != nil {
		return kindtest.Outcome{Undecodable: true}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	rest.FillObjectMetaSystemFields(m)
	m.SetUID(kindtest.UID)
	if base := m.GetGenerateName(); base != "" && m.GetName() == "" {
		m.SetName(kindtest.Generated(base))
	}
	var w warnings
	err = rest.BeforeCreate(t.main, t.context(&w), obj)
	return t.outcome(obj, err, w)
}

// Update implements kindtest.Rules.
func (t theirs) Update(body, old []byte) kindtest.Outcome {
	before, err := t.decode(old)
	if err != nil {
		panic(err)
	}
	obj, err := t.decode(body)
	if err != nil {
		return kindtest.Outcome{Undecodable: true}
	}
	for _, o := range []runtime.Object{before, obj} {
		kindtest.Identify(o)
		if m, err := meta.Accessor(o); err == nil && t.main.NamespaceScoped() {
			m.SetNamespace(metav1.NamespaceDefault)
		}
	}
	var w warnings
	err = rest.BeforeUpdate(t.strategy, t.context(&w), obj, before)
	return t.outcome(obj, err, w)
}

func (t theirs) outcome(obj runtime.Object, err error, w warnings) kindtest.Outcome {
	if err != nil {
		return t.refused(err)
	}
	return kindtest.Outcome{Object: t.encode(obj), Warnings: slices.Sorted(slices.Values(w))}
}

// refused reads the causes of an error of kube-apiserver.
func (t theirs) refused(err error) kindtest.Outcome {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		panic(fmt.Sprintf("no Status: %v", err))
	}
	var causes []kindtest.Cause
	for _, c := range status.Status().Details.Causes {
		causes = append(causes, kindtest.Cause{Field: c.Field, Reason: string(c.Type), Message: c.Message})
	}
	if !t.metadata {
		causes = kindtest.WithoutMetadata(causes)
	}
	return kindtest.Outcome{Causes: kindtest.Sorted(causes), Refused: true}
}
