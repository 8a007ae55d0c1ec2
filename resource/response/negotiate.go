// Package response negotiates, encodes, compresses and writes the bodies of HTTP responses,
// and errors as a Kubernetes Status. It does not depend on the kinds that a server has.
//
// Runs in: gateway, core, crd.
package response

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Media is an encoding of bodies.
type Media uint8

const (
	JSON Media = iota
	YAML
	Protobuf
	// CBOR is offered by Offer.Extra only, and not for tables.
	CBOR
)

// ContentType returns the value of the Content-Type header.
func (m Media) ContentType() string {
	switch m {
	case YAML:
		return runtime.ContentTypeYAML
	case Protobuf:
		return runtime.ContentTypeProtobuf
	case CBOR:
		return runtime.ContentTypeCBOR
	}
	return runtime.ContentTypeJSON
}

// StreamType returns the value of the Content-Type header of a watch.
func (m Media) StreamType() string {
	switch m {
	case Protobuf:
		return runtime.ContentTypeProtobuf + ";stream=watch"
	case CBOR:
		return runtime.ContentTypeCBORSequence
	}
	return m.ContentType()
}

// Transform is a conversion of the object that a client may ask for (docs/wire.md 3.2).
type Transform uint8

const (
	AsObject Transform = iota
	AsTable
	AsPartial
	AsPartialList
	// AsAggregated is the aggregated form of discovery (docs/wire.md 2.3).
	AsAggregated
)

// aggregated is the kind that a client asks for with as= to get AsAggregated.
var aggregated = schema.GroupVersionKind{Group: "apidiscovery.k8s.io", Version: "v2", Kind: "APIGroupDiscoveryList"}

// Format is the result of content negotiation.
type Format struct {
	Media     Media
	Transform Transform
	// MetaVersion is the version of meta.k8s.io of the transform.
	MetaVersion string
	// Pretty requests indented JSON.
	Pretty bool
}

// Offer describes the formats that an endpoint has.
type Offer struct {
	// Protobuf reports whether there is a protobuf form without a transform; nil: no.
	Protobuf func() bool
	// Extra are encodings besides JSON, YAML and protobuf.
	Extra []Media
	// Transforms permits the parameter as= for all transforms but AsAggregated, which
	// Aggregated permits.
	Transforms, Aggregated bool
	// Stream is set for a watch.
	Stream bool
	// List is set for a list. GVK is the kind of the response, for errors.
	List bool
	GVK  schema.GroupVersionKind
}

// OfferObject returns the Offer of one object that is not stored.
func OfferObject(obj runtime.Object, extra ...Media) Offer {
	return Offer{Extra: extra, Protobuf: func() bool {
		_, ok := obj.(runtime.ProtobufMarshaller)
		return ok
	}}
}

// Negotiate returns the format of the first clause of the Accept header, by quality, that
// the endpoint can satisfy. The error is a 406.
func Negotiate(r *http.Request, o Offer) (Format, error) {
	header := r.Header.Get("Accept")
	if all := r.Header.Values("Accept"); len(all) > 1 {
		header = strings.Join(all, ",")
	}
	switch header {
	case "", "*/*", runtime.ContentTypeJSON:
		return Format{Pretty: prettyQuery(r)}, nil
	}
	offered := append([]Media{JSON, YAML, Protobuf}, o.Extra...)
	for _, c := range parseAccept(header) {
		for _, m := range offered {
			if !c.matches(m) {
				continue
			}
			f, ok := o.satisfy(c, m)
			if !ok {
				continue
			}
			f.Pretty = f.Pretty || prettyQuery(r)
			return f, o.checkCardinality(f)
		}
	}
	return Format{}, o.notAcceptable(r)
}

// satisfy returns the format that a clause requests in one encoding; false: the endpoint
// does not have it.
func (o Offer) satisfy(c clause, m Media) (Format, bool) {
	f := Format{Media: m, Pretty: c.params["pretty"] == "1"}
	if o.Stream && m == YAML {
		return f, false
	}
	if stream := c.params["stream"]; stream != "" && (stream != "watch" || m == YAML) {
		return f, false
	}
	if version := c.params["sv"]; version != "" && version != "v1" {
		return f, false
	}
	kind, as := c.params["as"]
	group, g := c.params["g"]
	version, v := c.params["v"]
	if !as && !g && !v {
		return f, m != Protobuf || o.Protobuf != nil && o.Protobuf()
	}
	target := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	if o.Aggregated && target == aggregated {
		f.Transform = AsAggregated
		return f, m != YAML
	}
	return f, o.Transforms && f.setTransform(target)
}

// setTransform sets the transform to the kind target; false: there is no such transform.
func (f *Format) setTransform(target schema.GroupVersionKind) bool {
	if target.Group != metav1.GroupName || target.Version != "v1" && target.Version != "v1beta1" {
		return false
	}
	f.MetaVersion = target.Version
	switch target.Kind {
	case "Table":
		f.Transform = AsTable
		return f.Media != Protobuf && f.Media != CBOR
	case "PartialObjectMetadata":
		f.Transform = AsPartial
	case "PartialObjectMetadataList":
		f.Transform = AsPartialList
	default:
		return false
	}
	return true
}

// checkCardinality is the 406 for a transform to one object of a list, or to a list of one
// object.
func (o Offer) checkCardinality(f Format) error {
	switch {
	case f.Transform == AsPartial && o.List:
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%s)", o.GVK.Version, o.GVK.Kind))
	case f.Transform == AsPartialList && !o.List:
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s.%s)", o.GVK.Version, o.GVK.Kind))
	}
	return nil
}

// notAcceptable is the 406 for a request that accepts no format. That of a watch lists the
// streams if a list would be acceptable.
func (o Offer) notAcceptable(r *http.Request) error {
	if o.Stream {
		list := o
		list.Stream = false
		if _, err := Negotiate(r, list); err != nil {
			return err
		}
	}
	accepted := []string{runtime.ContentTypeJSON}
	if !o.Stream {
		accepted = append(accepted, runtime.ContentTypeYAML)
	}
	accepted = append(accepted, runtime.ContentTypeProtobuf) // of kinds without that form, metadata alone
	if o.Stream {
		for i := range accepted {
			accepted[i] += ";stream=watch"
		}
	}
	for _, m := range o.Extra {
		if o.Stream {
			accepted = append(accepted, m.StreamType())
		} else {
			accepted = append(accepted, m.ContentType())
		}
	}
	return NotAcceptable(accepted...)
}

// NotAcceptable is the 406 that lists the accepted media types.
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

// prettyQuery reports whether the request asks for indented JSON (docs/wire.md 3.5): the query
// parameter decides, or else whether the User-Agent is that of curl, wget or a browser.
func prettyQuery(r *http.Request) bool {
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
	params            map[string]string
}

func (c clause) matches(m Media) bool {
	return (c.mainType == "*" || c.mainType == "application") &&
		(c.subType == "*" || c.subType == m.ContentType()[len("application/"):])
}

// wildcards returns how many parts of the media range are a wildcard.
func (c clause) wildcards() int {
	switch "*" {
	case c.mainType:
		return 2
	case c.subType:
		return 1
	}
	return 0
}

// maxClauses bounds the work for one Accept header.
const maxClauses = 100

// parseAccept returns the clauses of an Accept header (RFC 9110, 12.5.1) by descending
// quality, then by specificity, then in their order. Malformed clauses and those of quality
// 0 are dropped.
func parseAccept(header string) []clause {
	var clauses []clause
	for part := range strings.SplitSeq(header, ",") {
		if c, ok := parseClause(part); ok {
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

func parseClause(text string) (clause, bool) {
	mediaType, params, err := mime.ParseMediaType(text)
	if errors.Is(err, mime.ErrInvalidMediaParameter) { // kube-apiserver ignores the parameter, and reads the others
		params = map[string]string{}
		for _, p := range strings.Split(text, ";")[1:] {
			name, value, _ := strings.Cut(p, "=")
			if value == "" || strings.Contains(value, "=") {
				continue
			}
			params[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	} else if err != nil {
		return clause{}, false
	}
	c := clause{quality: 1, params: params}
	c.mainType, c.subType, _ = strings.Cut(mediaType, "/")
	if mediaType == "*" {
		c.subType = "*"
	}
	if q, ok := params["q"]; ok {
		if c.quality, err = strconv.ParseFloat(q, 64); err != nil {
			return c, false
		}
	}
	return c, c.subType != "" && c.quality > 0 && c.quality <= 1
}
