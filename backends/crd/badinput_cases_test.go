package crd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// blobs is a definition with a schema that accepts everything, so that requests are only rejected for
// their form.
const blobs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: blobs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: blobs, kind: Blob}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

const (
	blobPath = "/apis/example.com/v1/namespaces/default/blobs"

	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
	protobuf   = "application/vnd.kubernetes.protobuf"

	// megabytes bounds the memory that a request allocates in all, client included, unless
	// its case has another bound.
	megabytes = 64
)

// badRequest is a request that must be rejected. Package handlers tests the options and media
// types of all kinds.
type badRequest struct {
	method, target, contentType, body string
	header                            []string // names and values
	code                              int
	reason                            metav1.StatusReason
	message                           string
	megabytes                         uint64
}

func blob(spec string) string {
	return `{"apiVersion":"example.com/v1","kind":"Blob","metadata":{"name":"b"},"spec":` + spec + `}`
}

func nested(depth int, open, middle, end string) string {
	return strings.Repeat(open, depth) + middle + strings.Repeat(end, depth)
}

// nestedMessage returns a definition as protobuf with a nested schema (not).
func nestedMessage(depth int) string {
	sizes := make([]int, depth)
	for i := 1; i < depth; i++ {
		sizes[i] = protowire.SizeTag(28) + protowire.SizeBytes(sizes[i-1])
	}
	var schema []byte
	for _, size := range slices.Backward(sizes) {
		schema = protowire.AppendVarint(protowire.AppendTag(schema, 28, protowire.BytesType), uint64(size))
	}
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	kind := append(field(1, []byte("apiextensions.k8s.io/v1")), field(2, []byte("CustomResourceDefinition"))...)
	object := field(2, field(7, field(4, field(1, schema))))
	return "k8s\x00" + string(field(1, kind)) + string(field(2, object))
}

// manyMessages returns a definition as protobuf with n versions.
func manyMessages(n int) string {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	kind := append(field(1, []byte("apiextensions.k8s.io/v1")), field(2, []byte("CustomResourceDefinition"))...)
	return "k8s\x00" + string(field(1, kind)) + string(field(2, field(2, bytes.Repeat(field(7, nil), n))))
}

// bomb returns YAML with aliases that expand to more than a billion elements.
func bomb() string {
	text := "a0: &a0 [x]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return text
}

// echo returns YAML of some kilobytes with aliases that expand to hundreds of megabytes of a
// scalar with a tag.
func echo(tag string) string {
	return blobYAML + "spec:\n  a: &a " + tag + ` "` + strings.Repeat("eHh4", 16<<10) + "\"\n  z: [" + strings.Repeat("*a,", 3_000) + "]\n"
}

// blobYAML is the beginning of a blob.
const blobYAML = "apiVersion: example.com/v1\nkind: Blob\nmetadata: {name: b}\n"

func definitionWith(schema string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"xs.example.com"},"spec":{"group":"example.com",` +
		`"scope":"Namespaced","names":{"plural":"xs","kind":"X"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
}

func token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func gzipped(text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return buf.String()
}

const (
	bad         = metav1.StatusReasonBadRequest
	invalid     = metav1.StatusReasonInvalid
	tooLarge    = metav1.StatusReasonRequestEntityTooLarge
	unsupported = metav1.StatusReasonUnsupportedMediaType
	unreadable  = metav1.StatusReasonNotAcceptable

	aliased = "the aliases of the YAML stand for more than 3145728 bytes"
	tooMany = "the body has more than 200000 values"
)

func badBodies() map[string]badRequest {
	post := func(contentType, body string, code int, reason metav1.StatusReason, message string) badRequest {
		return badRequest{method: "POST", target: blobPath, contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	const limit, deep = 3 << 20, 100_000
	many := badRequest{method: "POST", target: widgetPath, body: strings.Replace(widgetJSON, `"PORTS"`, strings.Repeat(`"a",`, 150_000)+"1", 1),
		code: 422, reason: invalid, message: "further errors are omitted", megabytes: 512}
	all := map[string]badRequest{
		"nothing":             post("", "", 400, bad, ""),
		"null":                post("", "null", 400, bad, ""),
		"array":               post("", "[]", 400, bad, ""),
		"braces":              post("", strings.Repeat("{", deep), 400, bad, ""),
		"brackets":            post("", strings.Repeat("[", deep), 400, bad, ""),
		"braces inside":       post("", blob(strings.Repeat(`{"a":`, deep)), 400, bad, "exceeded max depth"),
		"brackets inside":     post("", blob(strings.Repeat(`[`, deep)), 400, bad, "exceeded max depth"),
		"one level too deep":  post("", blob(nested(10_000, "[", "", "]")), 400, bad, "exceeded max depth"),
		"yaml braces":         post("application/yaml", strings.Repeat("{", deep), 400, bad, "exceeded max depth of 10000"),
		"yaml brackets":       post("application/yaml", strings.Repeat("[", deep), 400, bad, "exceeded max depth of 10000"),
		"yaml dashes":         post("application/yaml", strings.Repeat("- ", deep), 400, bad, "exceeded max depth of 10000"),
		"yaml question marks": post("application/yaml", strings.Repeat("? ", deep), 400, bad, "exceeded max depth of 10000"),
		"yaml aliases":        post("application/yaml", bomb(), 413, tooLarge, aliased),
		"yaml echo":           post("application/yaml", echo(""), 413, tooLarge, aliased),
		"yaml binary echo":    post("application/yaml", echo("!!binary"), 413, tooLarge, aliased),
		"yaml echo, strict": {method: "POST", target: blobPath + "?fieldValidation=Strict&dryRun=All", contentType: "application/yaml", body: echo(""), code: 413, reason: tooLarge,
			message: aliased},
		"yaml echo update":          {method: "PUT", target: blobPath + "/a", contentType: "application/yaml", body: echo(""), code: 413, reason: tooLarge, message: aliased},
		"yaml echo of a definition": {method: "POST", target: definitionPath, contentType: "application/yaml", body: echo(""), code: 413, reason: tooLarge, message: aliased},
		"yaml echo of options":      {method: "DELETE", target: blobPath + "/a", contentType: "application/yaml", body: echo(""), code: 413, reason: tooLarge, message: aliased},
		"yaml echo of a scale":      {method: "PUT", target: widgetPath + "/a/scale", contentType: "application/yaml", body: echo(""), code: 413, reason: tooLarge, message: aliased},
		"yaml echo of names":        post("application/yaml", strings.ReplaceAll(echo(""), "*a,", "{*a : 1},"), 413, tooLarge, aliased),
		"yaml, no UTF-8":            post("application/yaml", blob("{a: \"\xff\"}"), 400, bad, "invalid leading UTF-8 octet"),
		"1e999":                     post("", blob(`{"a":1e999}`), 400, bad, "1e999"),
		"too large":                 post("", blob(`"`+strings.Repeat("x", limit)+`"`), 413, tooLarge, "Request entity too large: limit is 3145728"),
		"gzip":                      {method: "POST", target: blobPath, body: gzipped(blob("{}")), header: []string{"Content-Encoding", "gzip"}, code: 400, reason: bad},
		"protobuf":                  post(protobuf, "k8s\x00", 400, bad, ""),
		"cbor":                      post("application/cbor", "\xd9\xd9\xf7\xa0", 415, unsupported, "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"),
		"wrong field type":          post("", `{"apiVersion":"example.com/v1","kind":"Blob","metadata":[]}`, 400, bad, ""),
		"kind is a number":          post("", `{"apiVersion":"example.com/v1","kind":1}`, 400, bad, ""),
		"integer too large":         {method: "POST", target: widgetPath, body: strings.Replace(widgetJSON, `"size":"small"`, `"size":"small","replicas":92233720368547758080`, 1), code: 422, reason: invalid, message: "spec.replicas"},
		"duplicate, strict": {method: "POST", target: blobPath + "?fieldValidation=Strict", body: blob(`{"a":{"b":1,"b":2}}`), code: 400, reason: bad,
			message: `duplicate field "spec.a.b"`},
		"duplicate, strict yaml": {method: "POST", target: blobPath + "?fieldValidation=Strict", contentType: "application/yaml", body: blob(`{"a":{"b":1,"b":2}}`), code: 400,
			reason: bad, message: `"b" already set in map`},
		"all wrong": many,
		"deep definition": {method: "POST", target: definitionPath, body: definitionWith(nested(4900, `{"properties":{"a":`, "{}", "}}")), code: 422, reason: invalid,
			message: "spec.versions[0].schema.openAPIV3Schema: Forbidden: schemas may not be nested more than 128 levels deep"},
		"deep protobuf definition": {method: "POST", target: definitionPath, contentType: protobuf, body: nestedMessage(500_000), code: 400, reason: bad,
			message: "the body is nested more than 1000 messages deep"},
		"values":      post("", blob("["+strings.Repeat("0,", 1_000_000)+"0]"), 413, tooLarge, tooMany),
		"yaml values": post("application/yaml", blob("["+strings.Repeat("a,", 1_000_000)+"a]"), 413, tooLarge, tooMany),
		"labels":      post("", strings.Replace(blob("{}"), `"name":`, `"labels":{`+strings.Repeat(`"a":"",`, 300_000)+`"a":""},"name":`, 1), 413, tooLarge, tooMany),
		"braces, all": post("", strings.Repeat("{", limit), 400, bad, "nested more than 10000 levels deep"),
		"protobuf definition of many schemas": {method: "POST", target: definitionPath, contentType: protobuf, body: manyMessages(1 << 20), code: 413, reason: tooLarge,
			message: tooMany},
	}
	for i, broken := range []string{`{`, `{"a"`, `{"a":`, `{"a":[`, `{"a":[1,`, `{"a":[1,]}`, `{"a":{"b":{"c":}}}`, `{"a":tru}`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":"\x"}`, "{\"a\":\"\n\"}", `{"a":"\u12"}`, `{,}`, `{}}`} {
		all[fmt.Sprintf("malformed %d", i)] = post("", blob(broken), 400, bad, "")
	}
	return all
}

const widgetJSON = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"size":"small","ports":["PORTS"]}}`

func badPatches() map[string]badRequest {
	patch := func(contentType, body string, code int, reason metav1.StatusReason, message string) badRequest {
		return badRequest{method: "PATCH", target: blobPath + "/a", contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	operations := func(n int, operation string) string {
		return "[" + strings.Repeat(operation+",", n-1) + operation + "]"
	}
	apply := func(body string, code int, reason metav1.StatusReason, message string) badRequest {
		return badRequest{method: "PATCH", target: blobPath + "/b?fieldManager=tester", contentType: applyPatch, body: body, code: code, reason: reason, message: message, megabytes: 192}
	}
	return map[string]badRequest{
		"merge braces": patch(mergePatch, strings.Repeat("{", 100_000), 400, bad, ""),
		"merge deep":   patch(mergePatch, `{"spec":{"a":`+nested(9_999, `{"a":`, "1", "}")+`}}`, 400, bad, ""),
		"copies": patch(jsonPatch, `[{"op":"add","path":"/spec/x","value":"`+strings.Repeat("x", 200_000)+`"},`+
			operations(20, `{"op":"copy","from":"/spec","path":"/spec/y"}`)[1:], 413, tooLarge, "exceeding the limit"),
		"shifts": patch(jsonPatch, `[{"op":"add","path":"/spec/x","value":[`+strings.Repeat("1,", 50_000)+`1]},`+
			operations(9_000, `{"op":"add","path":"/spec/x/0","value":1}`)[1:], 413, tooLarge, "the operations move more than"),
		"deep result": patch(jsonPatch, `[{"op":"add","path":"/spec/x","value":`+nested(6_000, "[", "", "]")+`},{"op":"add","path":"/spec/y","value":`+nested(6_000, `{"a":`, "{}", "}")+`},`+
			`{"op":"move","from":"/spec/x","path":"/spec/y`+strings.Repeat("/a", 6_000)+`"}]`, 422, invalid, ""),
		"operation without value": patch(jsonPatch, `[{"op":"replace","path":""}]`, 422, invalid, ""),
		"null in an array":        patch(jsonPatch, `[{"op":"add","path":"/spec/x","value":[null]},{"op":"test","path":"/spec/x","value":[1]}]`, 422, invalid, ""),
		"merge values":            patch(mergePatch, `{"spec":{"a":[`+strings.Repeat("0,", 1_000_000)+"0]}}", 413, tooLarge, tooMany),
		"operations of values":    patch(jsonPatch, `[{"op":"add","path":"/spec/a","value":[`+strings.Repeat("0,", 1_000_000)+"0]}]", 413, tooLarge, tooMany),
		"apply values":            apply(strings.Replace(blob("[]"), "[]", "["+strings.Repeat("0,", 1_000_000)+"0]", 1), 413, tooLarge, tooMany),
		"apply aliases":           apply(bomb(), 413, tooLarge, aliased),
		"apply echo":              apply(echo(""), 413, tooLarge, aliased),
		"apply brackets":          apply(strings.Repeat("[", 100_000), 400, bad, "exceeded max depth"),
		"apply managed fields": apply(strings.Replace(blob("{}"), `"name":"b"`, `"name":"b","managedFields":[`+operations(20_000, `{"manager":"x","operation":"Apply"}`)[1:], 1), 400, bad,
			"metadata.managedFields must be nil"),
	}
}

func badQueries() map[string]badRequest {
	get := func(query string, code int, reason metav1.StatusReason, message string) badRequest {
		return badRequest{method: "GET", target: blobPath + "?" + query, code: code, reason: reason, message: message, megabytes: 256}
	}
	accept := func(method, target, value, message string) badRequest {
		return badRequest{method: method, target: target, header: []string{"Accept", value}, code: 406, reason: unreadable, message: message}
	}
	return map[string]badRequest{
		"token elsewhere":    get("limit=1&continue="+token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/a"}`), 400, bad, "invalid continue token"),
		"token of braces":    get("limit=1&continue="+token(strings.Repeat("{", 100_000)), 400, bad, "invalid continue token"),
		"token from ahead":   get("limit=1&continue="+token(`{"v":"meta.k8s.io/v1","rv":9000000000000000000,"start":"a"}`), 0, "", ""),
		"megabyte selector":  get("labelSelector="+strings.Repeat("(", 900_000), 400, bad, ""),
		"megabyte of fields": get("fieldSelector="+strings.Repeat("a", 900_000), 400, bad, ""),

		"accepts protobuf":  accept("GET", blobPath+"/a", protobuf, ""),
		"accepts too much":  accept("GET", blobPath, strings.Repeat("text/html,", 50_000), ""),
		"writes unreadably": {method: "POST", target: blobPath, body: blob("{}"), header: []string{"Accept", protobuf}, code: 406, reason: unreadable},
	}
}
