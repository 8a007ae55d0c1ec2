package response

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

func requestWith(accept, agent, query string) *http.Request {
	r := httptest.NewRequest("GET", "/api/v1/configmaps?"+query, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	r.Header.Set("User-Agent", agent)
	return r
}

func TestNegotiate(t *testing.T) {
	const kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	object := Offer{Transforms: true, Protobuf: func() bool { return true }, GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	list := object
	list.List, list.GVK.Kind = true, "ConfigMapList"
	custom := object
	custom.Protobuf = func() bool { return false }
	stream := object
	stream.Stream = true
	plain := Offer{Protobuf: func() bool { return true }}
	withCBOR, cborStream := object, stream
	withCBOR.Extra, cborStream.Extra = []Media{CBOR}, []Media{CBOR}

	for _, c := range []struct {
		name, accept string
		offer        Offer
		want         Format
		err          string
	}{
		{name: "nothing", offer: object},
		{name: "anything", accept: "*/*", offer: object},
		{name: "any application type", accept: "application/*", offer: object},
		{name: "lone star", accept: "*", offer: object},
		{name: "unknown parameters", accept: "application/json;charset=utf-8", offer: object},
		{name: "yaml", accept: "application/yaml", offer: object, want: Format{Media: YAML}},
		{name: "protobuf first", accept: "application/vnd.kubernetes.protobuf,application/json", offer: object, want: Format{Media: Protobuf}},
		{name: "quality", accept: "application/json;q=0.5,application/yaml;q=0.9", offer: object, want: Format{Media: YAML}},
		{name: "quality 0", accept: "application/yaml;q=0,application/json;q=0.1", offer: object},
		{name: "specific before wildcard", accept: "*/*,application/yaml", offer: object, want: Format{Media: YAML}},
		{name: "browser", accept: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", offer: object},
		{name: "custom resource has no protobuf", accept: "application/vnd.kubernetes.protobuf,application/json", offer: custom},
		{name: "metadata of a custom resource has", accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", offer: custom,
			want: Format{Media: Protobuf, Transform: AsPartial, MetaVersion: "v1"}},
		{name: "kubectl", accept: kubectl, offer: list, want: Format{Transform: AsTable, MetaVersion: "v1"}},
		{name: "table v1beta1", accept: "application/json;as=Table;g=meta.k8s.io;v=v1beta1", offer: list, want: Format{Transform: AsTable, MetaVersion: "v1beta1"}},
		{name: "protobuf table is skipped", accept: "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", offer: list},
		{name: "unknown transform is skipped", accept: "application/json;as=Graph;g=meta.k8s.io;v=v1,application/yaml", offer: list, want: Format{Media: YAML}},
		{name: "transform of another group is skipped", accept: "application/json;as=Table;g=example.com;v=v1,application/yaml", offer: list, want: Format{Media: YAML}},
		{name: "transform without a group is skipped", accept: "application/json;as=Table;g=;v=v1,application/yaml; charset=", offer: list, want: Format{Media: YAML}},
		{name: "parameters without a value", accept: "application/json;g=;as;v=;q=", offer: list},
		{name: "no transforms here", accept: kubectl, offer: plain},
		{name: "server version", accept: "application/json;sv=v2,application/yaml;sv=v1", offer: object, want: Format{Media: YAML}},
		{name: "pretty", accept: "application/json;pretty=1", offer: object, want: Format{Pretty: true}},
		{name: "stream", accept: "application/vnd.kubernetes.protobuf;stream=watch", offer: stream, want: Format{Media: Protobuf}},
		{name: "other stream", accept: "application/json;stream=tail,application/json", offer: stream},
		{name: "no yaml streams", accept: "application/yaml", offer: stream,
			err: "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{name: "none", accept: "text/html", offer: object,
			err: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "none for a custom resource", accept: "application/vnd.kubernetes.protobuf", offer: custom,
			err: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "malformed", accept: ";;;,/,a/b/c", offer: plain,
			err: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "one for a list", accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", offer: list,
			err: "you requested PartialObjectMetadata, but the requested object is a list (*v1.ConfigMapList)"},
		{name: "list for one", accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", offer: object,
			err: "you requested PartialObjectMetadataList, but the requested object is not a list (*v1.ConfigMap)"},
		{name: "CBOR is not offered", accept: "application/cbor,application/yaml", offer: object, want: Format{Media: YAML}},
		{name: "CBOR is offered", accept: "application/json;q=0.9,application/cbor;q=1", offer: withCBOR, want: Format{Media: CBOR}},
		{name: "CBOR is not preferred", accept: "application/*", offer: withCBOR},
		{name: "CBOR of metadata", accept: "application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", offer: withCBOR,
			want: Format{Media: CBOR, Transform: AsPartial, MetaVersion: "v1"}},
		{name: "no table in CBOR", accept: "application/cbor;as=Table;g=meta.k8s.io;v=v1,application/yaml", offer: withCBOR, want: Format{Media: YAML}},
		{name: "none but CBOR", accept: "text/html", offer: withCBOR,
			err: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"},
		{name: "no stream but CBOR", accept: "application/cbor-seq", offer: cborStream,
			err: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"},
		{name: "no yaml stream but CBOR", accept: "application/yaml", offer: cborStream,
			err: "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"},
		{name: "a stream of CBOR", accept: "application/cbor", offer: cborStream, want: Format{Media: CBOR}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Negotiate(requestWith(c.accept, "test", ""), c.offer)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// Without a clause of the Accept header, the query decides about indentation, or else the User-Agent.
func TestPretty(t *testing.T) {
	for _, c := range []struct {
		agent, query string
		want         bool
	}{
		{"kubectl/v1.37", "", false},
		{"curl/8.0", "", true},
		{"Wget/1.2", "", true},
		{"Mozilla/5.0 (X11)", "", true},
		{"kubectl", "pretty=true", true},
		{"kubectl", "pretty=1", true},
		{"curl/8.0", "pretty=false", false},
		{"curl/8.0", "pretty=", true},
	} {
		if got := prettyQuery(requestWith("", c.agent, c.query)); got != c.want {
			t.Errorf("agent %q, query %q: %v", c.agent, c.query, got)
		}
	}
}

// The negotiated format is one that the endpoint has.
func FuzzNegotiate(f *testing.F) {
	for _, accept := range []string{
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "*/*;q=0.1,application/yaml;stream=watch",
		"application/*;as=Table;g=meta.k8s.io;v=v1beta1;pretty=1", "application/cbor;q=1,application/json;q=0.001", `application/json;q="0.5";sv=v1`, "*;as=Table",
	} {
		for kinds := range uint8(32) {
			f.Add(accept, kinds)
		}
	}
	f.Fuzz(func(t *testing.T, accept string, kinds uint8) {
		o := Offer{Extra: []Media{CBOR}[:kinds>>4&1], Transforms: kinds&1 != 0, Stream: kinds&2 != 0, List: kinds&4 != 0, GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
		if kinds&8 != 0 {
			o.Protobuf = func() bool { return true }
		}
		r := &http.Request{Header: http.Header{"Accept": {accept}}}
		got, err := Negotiate(r, o)
		if err != nil {
			if s := resource.AsStatus(err); s.Code != http.StatusNotAcceptable || s.Reason != metav1.StatusReasonNotAcceptable {
				t.Fatalf("%q: %v", accept, err)
			}
			return
		}
		switch {
		case got.Media == CBOR && (got.Transform == AsTable || len(o.Extra) == 0),
			got.Media == Protobuf && (got.Transform == AsTable || got.Transform == AsObject && o.Protobuf == nil),
			got.Media == YAML && o.Stream,
			got.Transform != AsObject && (!o.Transforms || got.MetaVersion != "v1" && got.MetaVersion != "v1beta1"),
			got.Transform == AsPartial && o.List, got.Transform == AsPartialList && !o.List:
			t.Fatalf("%q: %+v of %+v", accept, got, o)
		}
	})
}
