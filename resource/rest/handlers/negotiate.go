package handlers

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// media is an output encoding.
type media uint8

const (
	mediaJSON media = iota
	mediaYAML
	mediaProtobuf
)

// contentType returns the value of the Content-Type header.
func (m media) contentType() string {
	switch m {
	case mediaYAML:
		return runtime.ContentTypeYAML
	case mediaProtobuf:
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// subType returns the part behind "application/".
func (m media) subType() string { return m.contentType()[len("application/"):] }

// transform is what becomes of the object on its way out (docs/wire.md 3.2).
type transform uint8

const (
	asObject transform = iota
	asTable
	asPartial
	asPartialList
)

// format is a negotiated output.
type format struct {
	media     media
	transform transform
	// metaVersion is the version of meta.k8s.io that a transform is in.
	metaVersion string
	// pretty asks for indented JSON.
	pretty bool
}

// offer is what an endpoint can answer with.
type offer struct {
	// protobuf reports whether the untransformed answer has a protobuf form;
	// nil: it has not.
	protobuf func() bool
	// transforms says that as= is understood.
	transforms bool
	// stream is a watch.
	stream bool
	// list says that the answer is a list. gvk is the kind of the answer.
	list bool
	gvk  schema.GroupVersionKind
}

// offerOf returns what the endpoint named by the action can answer with.
func (a *API) offerOf(act *resource.Action, res *rest.Resource, sub *rest.Subresource) offer {
	o := offer{transforms: res.Review == nil, stream: act.Verb == "watch", gvk: res.GVK(act.Version)}
	if act.Verb == "list" || act.Verb == "deletecollection" {
		o.list = true
		o.gvk.Kind = res.List()
	}
	if sub != nil && sub.Projection != nil {
		view := sub.Projection.Kind
		o.gvk = view.GVK(view.Versions[0])
		o.protobuf = func() bool { return hasProtobuf(view.Codec.StrategicMerge(o.gvk)) }
		return o
	}
	object := res.GVK(act.Version)
	if sub != nil && !sub.GVK.Empty() {
		object, o.gvk, o.transforms = sub.GVK, sub.GVK, false
	}
	o.protobuf = func() bool { return hasProtobuf(res.Codec.StrategicMerge(object)) }
	return o
}

// offerObject returns the offer of one object that is not stored.
func offerObject(obj runtime.Object) offer {
	return offer{protobuf: func() bool { return hasProtobuf(obj) }}
}

// hasProtobuf reports whether the type of obj has a protobuf form.
func hasProtobuf(obj runtime.Object) bool {
	_, ok := obj.(runtime.ProtobufMarshaller)
	return ok
}

// negotiate chooses the output by the request's Accept header: the first
// clause, by quality, that the endpoint can satisfy. The error is a 406.
func negotiate(r *http.Request, o offer) (format, error) {
	header := r.Header.Get("Accept")
	if all := r.Header.Values("Accept"); len(all) > 1 {
		header = strings.Join(all, ",")
	}
	switch header {
	case "", "*/*", runtime.ContentTypeJSON:
		return format{pretty: prettyWanted(r)}, nil
	}
	for _, c := range parseAccept(header) {
		for _, m := range [...]media{mediaJSON, mediaYAML, mediaProtobuf} {
			if !c.matches(m) {
				continue
			}
			f, ok := o.satisfy(c, m)
			if !ok {
				continue
			}
			f.pretty = f.pretty || prettyWanted(r)
			return f, o.checkCardinality(f)
		}
	}
	return format{}, o.notAcceptable()
}

// satisfy reads the parameters of one clause for one encoding; false skips it.
func (o offer) satisfy(c clause, m media) (format, bool) {
	f := format{media: m}
	if o.stream && m == mediaYAML {
		return f, false
	}
	var target schema.GroupVersionKind
	transformed := false
	for _, p := range c.params {
		switch p.name {
		case "as":
			target.Kind, transformed = p.value, true
		case "g":
			target.Group, transformed = p.value, true
		case "v":
			target.Version, transformed = p.value, true
		case "stream":
			if p.value != "" && (p.value != "watch" || m == mediaYAML) {
				return f, false
			}
		case "sv":
			if p.value != "" && p.value != "v1" {
				return f, false
			}
		case "pretty":
			f.pretty = p.value == "1"
		}
	}
	if !transformed {
		return f, m != mediaProtobuf || (o.protobuf != nil && o.protobuf())
	}
	return f, o.transforms && f.transformTo(target)
}

// transformTo sets the transform; false if there is none like it.
func (f *format) transformTo(target schema.GroupVersionKind) bool {
	if target.Group != metav1.GroupName || (target.Version != "v1" && target.Version != "v1beta1") {
		return false
	}
	f.metaVersion = target.Version
	switch target.Kind {
	case "Table":
		f.transform = asTable
		return f.media != mediaProtobuf
	case "PartialObjectMetadata":
		f.transform = asPartial
	case "PartialObjectMetadataList":
		f.transform = asPartialList
	default:
		return false
	}
	return true
}

// checkCardinality refuses a transform to one object for a list, and the other
// way round.
func (o offer) checkCardinality(f format) error {
	switch {
	case f.transform == asPartial && o.list:
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", o.gvk.Version, o.gvk.Kind))
	case f.transform == asPartialList && !o.list:
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s.%s)", o.gvk.Version, o.gvk.Kind))
	}
	return nil
}

// notAcceptable is the 406 that lists what would do.
func (o offer) notAcceptable() error {
	accepted := []string{runtime.ContentTypeJSON}
	if !o.stream {
		accepted = append(accepted, runtime.ContentTypeYAML)
	}
	if o.protobuf != nil && o.protobuf() {
		accepted = append(accepted, runtime.ContentTypeProtobuf)
	}
	if o.stream {
		for i := range accepted {
			accepted[i] += ";stream=watch"
		}
	}
	return NotAcceptable(accepted...)
}

// NotAcceptable is the 406 that lists the media types there are.
func NotAcceptable(accepted ...string) error {
	return notAcceptable("only the following media types are accepted: " + strings.Join(accepted, ", "))
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: message,
	}}
}

// PrettyWanted reports whether the request asks for indented JSON, by its
// parameter, its Accept header or its user agent (docs/wire.md 3.5).
func PrettyWanted(r *http.Request) bool {
	for _, c := range parseAccept(strings.Join(r.Header.Values("Accept"), ",")) {
		if slices.Contains(c.params, param{"pretty", "1"}) {
			return true
		}
	}
	return prettyWanted(r)
}

// prettyWanted reports whether the request, apart from its Accept header, asks
// for indented JSON: by parameter, else by a user agent that people read
// (docs/wire.md 3.5).
func prettyWanted(r *http.Request) bool {
	if r.URL != nil && strings.Contains(r.URL.RawQuery, "pretty") {
		if p := r.URL.Query().Get("pretty"); p != "" {
			pretty, _ := strconv.ParseBool(p)
			return pretty
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// clause is one alternative of an Accept header.
type clause struct {
	mainType, subType string
	quality           float64
	params            []param
}

type param struct{ name, value string }

// matches reports whether the clause covers the encoding.
func (c clause) matches(m media) bool {
	return (c.mainType == "*" || c.mainType == "application") && (c.subType == "*" || c.subType == m.subType())
}

// maxClauses bounds the work that one Accept header can cause.
const maxClauses = 100

// parseAccept splits an Accept header into its clauses, best quality first,
// then the more specific, then as they stand. Malformed clauses and those of
// quality 0 are dropped.
func parseAccept(header string) []clause {
	var clauses []clause
	for part := range strings.SplitSeq(header, ",") {
		if c, ok := parseClause(part); ok && c.quality > 0 {
			clauses = append(clauses, c)
		}
		if len(clauses) == maxClauses {
			break
		}
	}
	slices.SortStableFunc(clauses, func(x, y clause) int {
		return cmp.Or(cmp.Compare(y.quality, x.quality), cmp.Compare(x.wildcards(), y.wildcards()))
	})
	return clauses
}

// wildcards counts the stars of the clause's media range.
func (c clause) wildcards() int {
	n := 0
	if c.mainType == "*" {
		n++
	}
	if c.subType == "*" {
		n++
	}
	return n
}

func parseClause(text string) (clause, bool) {
	mediaRange, params, _ := strings.Cut(text, ";")
	c := clause{quality: 1}
	mainType, subType, found := strings.Cut(strings.TrimSpace(mediaRange), "/")
	if !found && mainType == "*" {
		subType, found = "*", true
	}
	if !found || mainType == "" || subType == "" || strings.Contains(subType, "/") {
		return c, false
	}
	c.mainType, c.subType = strings.ToLower(mainType), strings.ToLower(subType)
	for params != "" {
		var p string
		p, params, _ = strings.Cut(params, ";")
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			continue
		}
		name = strings.ToLower(strings.TrimSpace(name))
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if name == "q" {
			q, err := strconv.ParseFloat(value, 64)
			if err != nil || !(q >= 0 && q <= 1) {
				return c, false
			}
			c.quality = q
			continue
		}
		c.params = append(c.params, param{name, value})
	}
	return c, true
}
