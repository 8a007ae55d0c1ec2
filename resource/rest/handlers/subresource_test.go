package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// connection responds with its options.
var connection = &rest.Connection{
	Methods: []string{http.MethodGet, http.MethodPost}, Options: func() runtime.Object { return &options{} }, Path: true, Admitted: true,
	NeedsCreate: func(r *http.Request) bool { return r.Header.Get("Upgrade") != "" },
	Serve: func(w http.ResponseWriter, r *http.Request, key resource.Key, opts runtime.Object) error {
		w.WriteHeader(299)
		o := opts.(*options)
		_, err := fmt.Fprintf(w, "%s %q %v %v %v %v", key, o.Path, o.Flag, o.List, o.Ports, o.Number)
		return err
	},
}

// options are those of connection.
type options struct {
	corev1.PodProxyOptions `json:"-"`

	Path   string   `json:"path"`
	Flag   bool     `json:"flag,omitempty"`
	List   []string `json:"list,omitempty"`
	Ports  []int32  `json:"ports"`
	Number *int64   `json:"number"`
}

// serviceAccounts is a kind with a call and a connection.
func serviceAccounts(dryRun *bool) *rest.Kind {
	scheme := resttest.CoreScheme()
	if err := authv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return &rest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true},
		Codec: rest.Typed(scheme, corev1.SchemeGroupVersion.WithKind("ServiceAccount")),
		Subresources: []rest.Subresource{
			{Name: "proxy", GVK: corev1.SchemeGroupVersion.WithKind("PodProxyOptions"), Connect: connection},
			{Name: "token", GVK: authv1.SchemeGroupVersion.WithKind("TokenRequest"), Create: func(_ context.Context, key resource.Key, body runtime.Object, dry bool) (runtime.Object, error) {
				*dryRun = dry
				request := body.(*authv1.TokenRequest)
				request.Status.Token = "for " + key.String() + " alias " + request.Name
				return request, nil
			}},
		},
	}
}

func tokenReviews(review func(context.Context, runtime.Object) (runtime.Object, error)) *rest.Kind {
	scheme := runtime.NewScheme()
	if err := authv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return &rest.Kind{
		Info:   resource.Info{Group: authv1.GroupName, Versions: []string{"v1"}, Resource: "tokenreviews", Kind: "TokenReview"},
		Codec:  rest.Typed(scheme, authv1.SchemeGroupVersion.WithKind("TokenReview")),
		Review: review,
	}
}

func TestCallAndConnect(t *testing.T) {
	var dry bool
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: serviceAccounts(&dry)})
	})
	const token = inDefault + "serviceaccounts/sa/token"
	a := b.send("POST", token, `{"spec":{"audiences":["x"]}}`).want(201, "")
	got := read(a, &authv1.TokenRequest{})
	if got.Status.Token != "for default/sa alias sa" || got.Kind != "TokenRequest" || got.APIVersion != "authentication.k8s.io/v1" || dry {
		t.Errorf("%s", a.body)
	}
	b.send("POST", token+"?dryRun=All", `{"metadata":{"name":"sa","namespace":"default"}}`).want(201, "")
	if !dry {
		t.Error("the call was not told of the dry run")
	}
	b.send("POST", token, `{"metadata":{"name":"other"}}`).want(400, "the name of the object (other) does not match the name on the URL (sa)")
	b.send("POST", token, `{"metadata":{"namespace":"other"}}`).want(400, "")
	b.send("POST", token, `{"apiVersion":"v1","kind":"ConfigMap"}`).want(400, "")
	b.send("GET", token, nil).want(405, "")
}

// A connection gets the rest of the path and the parameters, after the permission to create,
// where it needs that, and admission.
func TestConnect(t *testing.T) {
	admission, dry := &recorder{}, false
	var asked []string
	var refuse error
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Admission = admission
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: serviceAccounts(&dry)})
		cfg.Authorize = func(_ context.Context, act *resource.Action) error {
			asked = append(asked, act.Verb+" "+act.Resource+"/"+act.Subresource+" "+act.Name)
			return refuse
		}
	})
	const proxy = inDefault + "serviceaccounts/sa/proxy"
	for path, want := range map[string]string{
		"":      `default/sa "" false [] [] <nil>`,
		"/":     `default/sa "/" false [] [] <nil>`,
		"/a/b/": `default/sa "/a/b/" false [] [] <nil>`,
		"/a?path=/b&flag&list=x&list=y&ports=1&ports=2&other=z": `default/sa "/a" true [x y] [1 2] <nil>`,
	} {
		if got := b.send("GET", proxy+path, nil).want(299, ""); string(got.body) != want {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	b.send("POST", proxy+"?number=x", nil).want(400, "")
	b.send("POST", proxy+"?dryRun=All", nil).want(400, "dryRun is not supported")
	b.send("DELETE", proxy, nil).want(405, "")
	admission.asked = nil
	b.send("GET", proxy, nil, "Upgrade", "x").want(299, "")
	b.send("POST", proxy, nil, "Upgrade", "x").want(299, "")
	if want := "[create serviceaccounts/proxy sa]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if len(admission.asked) != 4 || !strings.HasPrefix(admission.asked[0], "mutate CONNECT default/sa object=true old=false") {
		t.Errorf("%q", admission.asked)
	}
	refuse = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "sa", errors.New("no"))
	b.send("GET", proxy, nil, "Upgrade", "x").want(403, `serviceaccounts "sa" is forbidden: no`)
	refuse, admission.refuse = nil, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "sa", errors.New("never"))
	b.send("GET", proxy, nil).want(403, `serviceaccounts "sa" is forbidden: never`)
}

// A call is a CREATE to admission, which sees its body.
func TestAdmissionOfCall(t *testing.T) {
	admission := &recorder{}
	var dry bool
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Admission = admission
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: serviceAccounts(&dry)})
	})
	const token = inDefault + "serviceaccounts/sa/token"
	b.send("POST", token+"?dryRun=All", `{}`).want(201, "")
	asked := []string{
		"mutate CREATE default/sa object=true old=false dry=true CreateOptions",
		"validate CREATE default/sa object=true old=false dry=true CreateOptions",
	}
	if fmt.Sprint(admission.asked) != fmt.Sprint(asked) {
		t.Errorf("asked %q, want %q", admission.asked, asked)
	}
	dry = false
	admission.refuse = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "sa", errors.New("no"))
	b.send("POST", token+"?dryRun=All", `{}`).want(403, `serviceaccounts "sa" is forbidden: no`)
	if dry {
		t.Error("what was refused was done")
	}
}

func TestReview(t *testing.T) {
	var refuse error
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Resources = append(cfg.Resources, &rest.Resource{Kind: tokenReviews(func(_ context.Context, obj runtime.Object) (runtime.Object, error) {
			review := obj.(*authv1.TokenReview)
			review.Status.Authenticated = review.Spec.Token == "good"
			return review, refuse
		})})
	})
	const path = "/apis/authentication.k8s.io/v1/tokenreviews"
	got := read(b.send("POST", path, `{"spec":{"token":"good"}}`).want(201, ""), &authv1.TokenReview{})
	if !got.Status.Authenticated || got.Kind != "TokenReview" {
		t.Errorf("%+v", got)
	}
	b.send("POST", path+"?fieldValidation=Strict", `{"foo":1}`).want(400,
		`TokenReview in version "v1" cannot be handled as a TokenReview: strict decoding error: unknown field "foo"`)
	b.send("GET", path, nil).want(405, "")
	b.send("DELETE", path+"/x", nil).want(404, "")
	refuse = apierrors.NewForbidden(authv1.Resource("tokenreviews"), "", errors.New("no"))
	b.send("POST", path, `{}`).want(403, `tokenreviews.authentication.k8s.io is forbidden: no`)
}

func TestCreateObjectAndModify(t *testing.T) {
	b := newBench(t)
	made, err := rest.CreateObject(t.Context(), b.configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}})
	if err != nil || made.UID == "" || made.CreationTimestamp.IsZero() || made.ResourceVersion == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := rest.CreateObject(t.Context(), b.configMaps, made.DeepCopy()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	key := resource.Key{Namespace: "default", Name: "a"}
	set := func(cm *corev1.ConfigMap) error { cm.Data = map[string]string{"x": "y"}; return nil }
	first, err := rest.Modify(t.Context(), b.configMaps, key, set)
	if err != nil || first.Data["x"] != "y" || first.ResourceVersion == made.ResourceVersion || first.UID != made.UID {
		t.Fatalf("%+v, %v", first, err)
	}
	same, err := rest.Modify(t.Context(), b.configMaps, key, set)
	if err != nil || same.ResourceVersion != first.ResourceVersion {
		t.Errorf("a change that changes nothing: %v, %v", same, err)
	}
	refuse := errors.New("no")
	if _, err := rest.Modify(t.Context(), b.configMaps, key, func(*corev1.ConfigMap) error { return refuse }); !errors.Is(err, refuse) {
		t.Errorf("refused: %v", err)
	}
	key.Name = "none"
	if _, err := rest.Modify(t.Context(), b.configMaps, key, set); !apierrors.IsNotFound(err) {
		t.Errorf("missing: %v", err)
	}
}
