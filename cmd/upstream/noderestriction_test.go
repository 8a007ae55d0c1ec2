package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"

	"portico/resource"
	porticorest "portico/resource/rest"
)

// nodeWrite is a write of a kubelet.
type nodeWrite struct {
	name     string // of the case
	resource schema.GroupResource
	sub      string
	now, old porticorest.Object // nil for deletions and creations
	user     *user.DefaultInfo  // nil: that of node n1
	key      resource.Key       // of the object, unless now or old has it
}

// restrictions are the plugins NodeRestriction of both servers, which find the same objects.
type restrictions struct {
	ours                      *ourPlugin
	theirs                    *theirPlugin
	cases, refused, differing int
}

// granted are the names of audiences and signers for which nodes have rights to the account sa.
var granted = map[string]bool{"granted": true, "example.com:granted": true}

func newRestrictions(t *testing.T, objects []porticorest.Object) *restrictions {
	t.Helper()
	may := func(namespace, res, name, who string) bool {
		return namespace == "ns" && name == "sa" && granted[res] && who == "system:node:n1"
	}
	r := &restrictions{}
	r.ours = newOurs(t, "NodeRestriction", "", objects, func(_ context.Context, a *resource.Action) error {
		if may(a.Namespace, a.Resource, a.Name, a.User.Name) {
			return nil
		}
		return errors.New("no")
	})
	r.theirs = newTheirs(t, "NodeRestriction", "", noderestriction.Register, objects, authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if may(a.GetNamespace(), a.GetResource(), a.GetName(), a.GetUser().GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	return r
}

// nodeUser is the user of node n1.
var nodeUser = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}

// claimDifferences are a text for programmers that follows the message about the status of a claim,
// which Portico leaves out.
var claimDifferences = regexp.MustCompile(`(?s)(fields other than status\.quantity and status\.conditions): .*`)

// compare has both plugins decide about a write.
func (r *restrictions) compare(t *testing.T, w nodeWrite) {
	t.Helper()
	if w.user == nil {
		w.user = nodeUser
	}
	if obj := w.old; obj != nil && w.key.Name == "" {
		w.key = resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	} else if obj := w.now; obj != nil && w.key.Name == "" {
		w.key = resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	}
	ours, theirs := r.our(t, w), r.their(t, w)
	r.cases++
	if theirs != "" {
		r.refused++
	}
	theirs = claimDifferences.ReplaceAllString(theirs, "$1")
	if !same(pluginOutcome{Error: ours}, pluginOutcome{Error: theirs}) {
		if r.differing++; r.differing <= 20 {
			t.Errorf("%s %s/%s:\nours   %s\ntheirs %s", w.name, w.resource, w.sub, ours, theirs)
		}
	}
}

// operation returns the operation of a write.
func (w *nodeWrite) operation() admission.Operation {
	switch {
	case w.now == nil:
		return admission.Delete
	case w.old == nil:
		return admission.Create
	}
	return admission.Update
}

// our returns the refusal of Portico; "": none.
func (r *restrictions) our(t *testing.T, w nodeWrite) string {
	t.Helper()
	row := r.ours.resources[w.resource]
	if row == nil {
		t.Fatalf("no kind of %s", w.resource)
	}
	a := &porticorest.Attributes{
		Action: &resource.Action{Version: row.Versions[0], Subresource: w.sub, User: &resource.User{Name: w.user.Name, Groups: w.user.Groups}},
		Kind:   row.Kind, Operation: porticorest.Operation(w.operation()), Key: w.key,
	}
	defaulted := func(obj porticorest.Object) porticorest.Object {
		if obj = obj.DeepCopyObject().(porticorest.Object); row.Strategy.Default != nil && reflect.TypeOf(obj) == reflect.TypeOf(row.Codec.StrategicMerge(row.GVK(row.Versions[0]))) {
			row.Strategy.Default(obj)
		}
		return obj
	}
	if w.now != nil {
		a.Object = defaulted(w.now)
	}
	if w.old != nil {
		a.Old = defaulted(w.old)
	}
	return refusal(r.ours.plugin.Mutate(t.Context(), a))
}

// their returns the refusal of kube-apiserver; "": none.
func (r *restrictions) their(t *testing.T, w nodeWrite) string {
	t.Helper()
	row := r.ours.resources[w.resource]
	version := row.Versions[0]
	attributes := admission.NewAttributesRecord(internal(t, w.now), internal(t, w.old), row.GVK(version), w.key.Namespace, w.key.Name, row.GVR(version), w.sub, w.operation(), nil, false, w.user)
	if !r.theirs.plugin.Handles(w.operation()) {
		return ""
	}
	return refusal(r.theirs.plugin.(admission.MutationInterface).Admit(t.Context(), attributes, nil))
}

func refusal(err error) string {
	if err == nil {
		return ""
	}
	return message(err)
}

// internal returns an object in kube-apiserver's form, with its defaults.
func internal(t *testing.T, obj porticorest.Object) runtime.Object {
	t.Helper()
	if obj == nil {
		return nil
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(data, &gvks[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
