package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource/rest/body"
	"portico/resource/rest/resttest"
)

// rejection is a request and the Status with which it is rejected.
type rejection struct {
	path string
	// mediaType is the Content-Type of the body, or what a GET accepts; "": JSON, "-": none.
	mediaType, body string
	code            int
	// message is that of the Status, or its beginning if it ends with "..."; "": any.
	message string
}

// reasons are the reasons of the codes. Some errors have none.
var reasons = map[int][]metav1.StatusReason{
	400: {metav1.StatusReasonBadRequest}, 404: {metav1.StatusReasonNotFound}, 405: {metav1.StatusReasonMethodNotAllowed},
	406: {metav1.StatusReasonNotAcceptable}, 409: {metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists},
	413: {metav1.StatusReasonRequestEntityTooLarge}, 415: {metav1.StatusReasonUnsupportedMediaType},
	422: {metav1.StatusReasonInvalid, ""}, 500: {"", metav1.StatusReasonInternalError},
}

// rejects sends the requests and compares the answers. No request may store anything.
func (b *bench) rejects(t *testing.T, method string, tests map[string]rejection) {
	t.Helper()
	before := b.storage.Revision()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b.t = t
			header := "Content-Type"
			if method == "GET" {
				header = "Accept"
			}
			var headers []string
			if test.mediaType != "" {
				headers = []string{header, strings.TrimPrefix(test.mediaType, "-")}
			}
			a := b.send(method, test.path, test.body, headers...).want(test.code, "")
			s := a.status()
			beginning, cut := strings.CutSuffix(test.message, "...")
			if test.message != "" && s.Message != test.message && !(cut && strings.HasPrefix(s.Message, beginning)) {
				t.Errorf("message %q, want %q", s.Message, test.message)
			}
			if s.Kind != "Status" || int(s.Code) != test.code || !slices.Contains(reasons[test.code], s.Reason) || a.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("got %v %s", a.Header, a.body)
			}
			// A failed negotiation is answered as for a person.
			if test.code == http.StatusNotAcceptable && !strings.HasPrefix(string(a.body), "{\n  ") {
				t.Errorf("the 406 is not indented: %s", a.body)
			}
		})
	}
	b.t = t
	if after := b.storage.Revision(); after != before {
		t.Errorf("rejected requests were stored: revision %d, then %d", before, after)
	}
}

const (
	unknownFormat = "the body of the request was in an unknown format - accepted media types include: "
	conflictOfA   = `Operation cannot be fulfilled on configmaps "a": `
	unrecognized  = "the object provided is unrecognized (must be of type ConfigMap): ..."
	unprocessable = "the server rejected our request due to an error in our request"
	badPatch      = ` "" is invalid: patch: Invalid value: ...`
	strictFields  = `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo", duplicate field "immutable"`
)

func TestRejectedReads(t *testing.T) {
	b := newBench(t)
	b.create(bare("a"))
	const all = "/api/v1/configmaps"
	b.rejects(t, "GET", map[string]rejection{
		"missing":             {configMaps + "/b", "", "", 404, `configmaps "b" not found`},
		"revision":            {configMapA + "?resourceVersion=x", "", "", 500, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"revision of a watch": {all + "?watch=1&resourceVersion=x", "", "", 500, `resourceVersion: Invalid value: "x"...`},
		"revision of a list":  {all + "?resourceVersion=x", "", "", 400, `invalid resource version: resourceVersion: Invalid value: "x"...`},
		"export":              {configMapA + "?export=true", "", "", 400, "the export parameter, deprecated since v1.14, is no longer supported"},
		"export of a list":    {configMaps + "?export", "", "", 400, "the export parameter, deprecated since v1.14, is no longer supported"},
		"format":              {configMapA, "text/html", "", 406, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		"initial events":      {all + "?watch=1&sendInitialEvents=true", "", "", 422, `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires...`},
		"token":               {all + "?continue=!", "", "", 400, "invalid continue token: ..."},
		"includeObject":       {configMaps + "?includeObject=All", tableAccept, "", 400, "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty"},
		"format of a scale":   {scaleW, "text/plain", "", 406, ""},
		"scale of no object":  {widgetsPath + "/none/scale", "", "", 404, `widgets.example.com "none" not found`},
		"status of no object": {inDefault + "services/none/status", "", "", 404, `services "none" not found`},
		"no subresource":      {configMapA + "/status", "", "", 404, "the server could not find the requested resource"},
		"none without a type": {widgetW + "/none", "", "", 404, `widgets.example.com "w" not found`},
	})
	// The Status has the format that the request asks for, if there is one.
	if a := b.send("GET", all+"?watch=1", nil, "Accept", runtime.ContentTypeYAML); a.StatusCode != 406 || a.Header.Get("Content-Type") != runtime.ContentTypeYAML ||
		!strings.Contains(string(a.body), "application/json;stream=watch") {
		t.Errorf("a watch as YAML: %s %v %s", a.Status, a.Header, a.body)
	}
	for _, path := range []string{"/api/v1/pods", "/api/v2/configmaps", "/apis/x.io/v1/configmaps", "/api/v1/configmaps/a", "/api/v1/proxy/configmaps", "/other"} {
		if resp, body := b.do("GET", path); resp.StatusCode != 404 || body != "404 page not found\n" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("GET %s: %s %s", path, resp.Status, body)
		}
	}
	b.send("DELETE", configMapA, nil, "Accept", "text/html").want(406, "")
	b.send("GET", configMapA, nil).want(200, "")
}

// A path has only some methods (docs/wire.md 1.1, 1.2).
func TestMethodsNotAllowed(t *testing.T) {
	b := newBench(t)
	const all = "/api/v1/configmaps"
	for verb, paths := range map[string][]string{
		"create":           {"POST", all, configMapA, serviceS + "/status", scaleW},
		"update":           {"PUT", configMaps},
		"patch":            {"PATCH", configMaps},
		"watch":            {"POST", "/api/v1/watch/configmaps"},
		"delete":           {"DELETE", serviceS + "/status", scaleW},
		"deletecollection": {"DELETE", all},
	} {
		for _, path := range paths[1:] {
			message := "the server does not allow this method on the requested resource"
			if path == scaleW {
				message = verb + ` is not supported on resources of kind "widgets.example.com"`
			}
			b.rejects(t, paths[0], map[string]rejection{path: {path, "", `{}`, 405, message}})
		}
	}
	if resp, _ := b.do("HEAD", configMapA); resp.StatusCode != 405 {
		t.Errorf("HEAD: %s", resp.Status)
	}
	b.send("PUT", configMapA+"/nope", `{}`).want(404, "")
}

func TestRejectedCreates(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("taken"))
	going := bare("going")
	going.Finalizers = []string{"example.com/x"}
	b.create(going)
	b.send("DELETE", configMaps+"/going", nil).want(200, "")
	long := strings.Repeat("a", 254)
	named := func(meta string) string { return `{"metadata":{"name":"x"` + meta + `}}` }
	owner := func(kind string) string {
		return `{"apiVersion":"v1","kind":"` + kind + `","name":"a","uid":"` + kind + `","controller":true}`
	}
	b.rejects(t, "POST", map[string]rejection{
		"exists":          {configMaps, "", `{"metadata":{"name":"taken"}}`, 409, `configmaps "taken" already exists`},
		"exists, dry run": {configMaps + "?dryRun=All", "", `{"metadata":{"name":"taken"}}`, 409, `configmaps "taken" already exists`},
		"being deleted":   {configMaps, "", `{"metadata":{"name":"going"}}`, 409, `object is being deleted: configmaps "going" already exists`},
		"exists, generateName": {configMaps, "", `{"metadata":{"name":"taken","generateName":"a"}}`, 409,
			`configmaps "taken" already exists, the server was not able to generate a unique name for the object`},
		"no name":         {configMaps, "", `{}`, 422, `ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`},
		"slash in name":   {configMaps, "", `{"metadata":{"name":"../x"}}`, 422, ""},
		"long name":       {configMaps, "", `{"metadata":{"name":"` + long + `"}}`, 422, ""},
		"namespace":       {configMaps, "", named(`,"namespace":"other"`), 400, "the namespace of the provided object does not match the namespace sent on the request"},
		"resourceVersion": {configMaps, "", named(`,"resourceVersion":"5"`), 500, "resourceVersion should not be set on objects to be created"},
		"managedFields":   {inDefault + "secrets", "", named(`,"managedFields":[{"operation":"Own"}]`), 422, ""},
		"version":         {configMaps, "", `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"x"}}`, 400, ""},
		"kind":            {configMaps, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, `Secret in version "v1" cannot be handled as a ConfigMap`},
		"list":            {configMaps, "", `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`, 400, `ConfigMapList in version "v1" cannot be handled as a ConfigMap...`},
		"another version": {widgetsPath, "", `{"kind":"Widget","apiVersion":"example.com/v1beta1"}`, 400, "the API version in the data (example.com/v1beta1) does not match the expected API version (example.com/v1)"},
		"media type":      {configMaps, "text/plain", `{}`, 415, unknownFormat + "application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		"dry run":         {configMaps + "?dryRun=x", "", `{}`, 422, `CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`},
		"manager":         {configMaps + "?fieldManager=" + long, "", `{}`, 422, `CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes`},
		"validation":      {configMaps + "?fieldValidation=x", "", `{}`, 422, ""},
		"strict":          {configMaps + "?fieldValidation=Strict", "", `{"metadata":{"name":"x"},"foo":1,"immutable":true,"immutable":true}`, 400, strictFields},
		"strict YAML": {configMaps + "?fieldValidation=Strict", runtime.ContentTypeYAML, "metadata: {name: x}\nnope: 1\ndata: {a: b, a: c}\n", 400,
			"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 3: key \"a\" already set in map, unknown field \"nope\""},
		"finalizer": {configMaps, "", named(`,"finalizers":["bare"]`), 422,
			`ConfigMap "x" is invalid: metadata.finalizers[0]: Invalid value: "bare": name is neither a standard finalizer name nor is it fully qualified`},
		"both finalizers": {configMaps, "", named(`,"finalizers":["orphan","foregroundDeletion"]`), 422, ""},
		"annotations":     {configMaps, "", named(`,"annotations":{"a":"` + strings.Repeat("x", 262144) + `"}`), 422, `ConfigMap "x" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`},
		"two controllers": {configMaps, "", named(`,"ownerReferences":[` + owner("A") + "," + owner("B") + `]`), 422, ""},
		"no JSON":         {configMaps, "", `{`, 400, ""},
		"empty":           {configMaps, "", ``, 400, unrecognized},
		"too large":       {configMaps, "", `{"metadata":{"name":"x"},"data":{"k":"` + strings.Repeat("x", body.MaxSize) + `"}}`, 413, "Request entity too large: limit is 3145728"},
	})
}

func TestRejectedUpdates(t *testing.T) {
	b := newTrackedBench(t)
	uid := string(b.create(bare("a")).UID)
	b.send("POST", inDefault+"services", `{"metadata":{"name":"s"}}`).want(201, "")
	b.widget(`{"replicas":1}`)
	named := func(meta string) string { return `{"metadata":{"name":"a"` + meta + `}}` }
	b.rejects(t, "PUT", map[string]rejection{
		"missing":         {configMaps + "/x", "", `{"metadata":{"name":"x"}}`, 404, `configmaps "x" not found`},
		"uid":             {configMapA, "", named(`,"uid":"x"`), 409, conflictOfA + `Precondition failed: UID in precondition: x, UID in object meta: ` + uid},
		"unconditional":   {serviceS, "", `{"metadata":{"name":"s"}}`, 422, `services "s" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		"revision":        {configMapA, "", named(`,"resourceVersion":"x"`), 400, ""},
		"dry run":         {configMapA + "?dryRun=All", "", named(`,"resourceVersion":"1000"`), 409, ""},
		"encoded slash":   {configMaps + "/a%2Fb", "", `{"metadata":{"name":"a/b"}}`, 400, ""},
		"new with a uid":  {inDefault + "services/t", "", `{"metadata":{"name":"t","uid":"x"}}`, 409, ""},
		"new and invalid": {inDefault + "services/T", "", `{"metadata":{"name":"T"}}`, 422, ""},
		"generateName":    {configMapA, "", named(`,"generateName":"a/b"`), 422, `ConfigMap "a" is invalid: metadata.generateName: Invalid value: "a/b": may not contain '/'`},
		"finalizer":       {configMapA, "", named(`,"finalizers":["bare"]`), 422, ""},
		"empty":           {configMapA, "", "", 400, unrecognized},
		"kind":            {configMapA, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, `Secret in version "v1" cannot be handled as a ConfigMap`},
		"another name":    {configMapA, "", `{"metadata":{"name":"b"}}`, 400, "the name of the object (b) does not match the name on the URL (a)"},
		"no name":         {configMapA, "", `{}`, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"},
		"namespace":       {configMapA, "", named(`,"namespace":"x"`), 400, "the namespace of the provided object does not match the namespace sent on the request"},
		"strict":          {configMapA + "?fieldValidation=Strict", "", `{"metadata":{"name":"a"},"foo":1,"immutable":true,"immutable":true}`, 400, strictFields},
		"dry run option":  {configMapA + "?dryRun=All&dryRun=x", "", `{}`, 422, `UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["All","x"]: supported values: "All"`},
		"status":          {inDefault + "services/none/status", "", `{"metadata":{"name":"none"}}`, 404, `services "none" not found`},
		"scale uid":       {scaleW, "", `{"metadata":{"name":"w","uid":"x"}}`, 409, ""},
		"scale name":      {scaleW, "", `{"metadata":{"name":"v"}}`, 400, "the name of the object (v) does not match the name on the URL (w)"},
		"scale namespace": {scaleW, "", `{"metadata":{"name":"w","namespace":"other"}}`, 400, ""},
		"scale kind":      {scaleW, "", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`, 400, ""},
		"scale strict":    {scaleW + "?fieldValidation=Strict", "", `{"metadata":{"name":"w"},"foo":1}`, 400, ""},
		"missing scale":   {widgetsPath + "/none/scale", "", `{"metadata":{"name":"none"}}`, 404, `widgets.example.com "none" not found`},
		"collection":      {widgetsPath, "", `{}`, 400, "name must be provided"},
	})
	if b.claimed != 1 {
		t.Errorf("%d allocations after rejected updates, want 1", b.claimed)
	}
}

func TestRejectedPatches(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("a"))
	b.put(b.secrets, resttest.Secret("s"))
	b.widget(`{"replicas":1}`)
	test := `{"op":"test","path":"/data/k","value":"v"}`
	many := "[" + strings.Repeat(test+",", 10000) + test + "]"
	// Every copy doubles the object.
	copies := `[{"op":"add","path":"/data/x","value":"` + strings.Repeat("x", 1<<20) + `"}` +
		strings.Repeat(`,{"op":"copy","from":"/data/x","path":"/data/y"}`, 4) + "]"
	accepted := func(types ...string) string { return unknownFormat + strings.Join(types, ", ") }
	b.rejects(t, "PATCH", map[string]rejection{
		"missing":                      {configMaps + "/x", mergePatch, `{}`, 404, `configmaps "x" not found`},
		"type":                         {configMapA, runtime.ContentTypeJSON, `{}`, 415, accepted(jsonPatch, mergePatch, strategicPatch, applyPatch)},
		"no type":                      {configMapA, "-", `{}`, 415, ""},
		"apply":                        {inDefault + "secrets/s", applyPatch, `{}`, 415, accepted(jsonPatch, mergePatch, strategicPatch)},
		"strategic":                    {widgetW, strategicPatch, `{}`, 415, accepted(jsonPatch, mergePatch, applyPatch)},
		"strategic of a scale":         {scaleW, strategicPatch, `{}`, 415, accepted(jsonPatch, mergePatch, applyPatch)},
		"scale name":                   {scaleW, mergePatch, `{"metadata":{"name":"v"}}`, 400, "the name of the object (v) does not match the name on the URL (w)"},
		"collection":                   {widgetsPath, mergePatch, `{}`, 400, "name must be provided"},
		"collection, type":             {widgetsPath, strategicPatch, `{}`, 415, ""},
		"empty":                        {configMapA, mergePatch, "", 400, "invalid JSON patch"},
		"no JSON":                      {configMapA, mergePatch, `{`, 400, "invalid JSON patch"},
		"merge array":                  {configMapA, mergePatch, `[]`, 400, ""},
		"merge array, ignoring errors": {configMapA + "?fieldValidation=Ignore", mergePatch, `[]`, 400, ""},
		"merge null":                   {configMapA, mergePatch, `null`, 400, ""},
		"JSON object":                  {configMapA, jsonPatch, `{}`, 400, "error decoding patch: ..."},
		"JSON object, ignoring errors": {configMapA + "?fieldValidation=Ignore", jsonPatch, `"x"`, 400, "json: cannot unmarshal string..."},
		"operation":                    {configMapA, jsonPatch, `[{"op":"nope","path":"/data"}]`, 422, unprocessable},
		"operations":                   {configMapA, jsonPatch, many, 413, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"},
		"copies": {configMapA, jsonPatch, copies, 413,
			"Request entity too large: operation 3: copy \"/data/y\": Unable to complete the copy, the accumulated size increase of copy is 3145734, exceeding the limit 3145728"},
		"test fails":  {configMapA, jsonPatch, `[{"op":"test","path":"/data/k","value":"w"}]`, 422, unprocessable},
		"no path":     {configMapA, jsonPatch, `[{"op":"remove","path":"/data/none"}]`, 422, unprocessable},
		"name":        {configMapA, mergePatch, `{"metadata":{"name":"b"}}`, 400, "the name of the object (b) does not match the name on the URL (a)"},
		"no name":     {configMapA, strategicPatch, `{"metadata":{"name":null}}`, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"},
		"namespace":   {configMapA, mergePatch, `{"metadata":{"namespace":"x"}}`, 400, "the namespace of the provided object does not match the namespace sent on the request"},
		"revision":    {configMapA, mergePatch, `{"metadata":{"resourceVersion":"1"}}`, 409, conflictOfA + errModified},
		"uid":         {configMapA, mergePatch, `{"metadata":{"uid":"x"}}`, 422, `ConfigMap "a" is invalid: metadata.uid: Invalid value: "x": field is immutable`},
		"force":       {configMapA + "?force=true", mergePatch, `{}`, 422, `PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch`},
		"validation":  {configMapA + "?fieldValidation=x", mergePatch, `{}`, 422, `PatchOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn"`},
		"finalizer":   {configMapA + "?dryRun=All", mergePatch, `{"metadata":{"finalizers":["bare"]}}`, 422, ""},
		"result":      {configMapA, mergePatch, `{"data":5}`, 422, badPatch},
		"strict":      {configMapA + "?fieldValidation=Strict", mergePatch, `{"foo":1}`, 422, badPatch},
		"strict JSON": {configMapA + "?fieldValidation=Strict", jsonPatch, `[{"op":"test","path":"/data/k","value":"v","foo":1}]`, 422, badPatch},
		"strict strategic": {configMapA + "?fieldValidation=Strict", strategicPatch, `{"nope":1}`, 422,
			` "" is invalid: patch: Invalid value: "map[nope:1]": strict decoding error: unknown field "nope"`},
		"strategic result":  {configMapA, strategicPatch, `{"data":{"k":1}}`, 422, ` "" is invalid: patch: Invalid value: "map[data:map[k:1]]": ...`},
		"strategic labels":  {configMapA, strategicPatch, `{"metadata":{"labels":"x"}}`, 422, ` "" is invalid: patch: Invalid value: "map[metadata:map[labels:x]]": cannot restore map from string`},
		"strategic list":    {configMapA, strategicPatch, `[]`, 400, ""},
		"directive":         {configMapA, strategicPatch, `{"data":{"$patch":"nope"}}`, 400, ""},
		"list of lists":     {configMapA, strategicPatch, `{"metadata":{"finalizers":[["x"]]}}`, 422, ""},
		"invalid scale":     {scaleW, mergePatch, `{"spec":{"replicas":-1}}`, 422, `Widget.example.com "w" is invalid: spec.replicas: Invalid value: -1: must not be negative`},
		"uid of scale":      {scaleW, mergePatch, `{"metadata":{"uid":"x"}}`, 409, ""},
		"revision of scale": {scaleW, mergePatch, `{"metadata":{"resourceVersion":"1000"}}`, 409, ""},
	})
}

func TestRejectedApplies(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("a"))
	b.widget(`{"replicas":1}`)
	const (
		manager  = "?fieldManager=m"
		a, other = configMapA + manager, configMaps + "/b" + manager
		scale    = `{"apiVersion":"autoscaling/v1","kind":"Scale"`
	)
	b.rejects(t, "PATCH", map[string]rejection{
		"media type":      {a, "application/apply-patch+cbor", "x", 415, unknownFormat + strings.Join([]string{jsonPatch, mergePatch, strategicPatch, applyPatch}, ", ")},
		"no manager":      {configMapA + "?fieldManager=", applyPatch, cmIntent(""), 422, `PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch`},
		"managedFields":   {a, applyPatch, cmIntent(`,"metadata":{"managedFields":[]}`), 400, "metadata.managedFields must be nil"},
		"no kind":         {a, applyPatch, `{}`, 400, "invalid object type: /, Kind="},
		"empty":           {a, applyPatch, ``, 400, "invalid object type: /, Kind="},
		"another kind":    {a, applyPatch, `{"apiVersion":"v1","kind":"Secret"}`, 400, "invalid object type: /v1, Kind=Secret"},
		"another version": {a, applyPatch, `{"apiVersion":"v2","kind":"ConfigMap"}`, 400, "invalid object type: /v2, Kind=ConfigMap"},
		"no object":       {a, applyPatch, `[]`, 400, ""},
		"no YAML":         {a, applyPatch, `{`, 400, ""},
		"unknown field":   {a, applyPatch, cmIntent(`,"foo":1`), 400, `failed to create typed patch object (/; /v1, Kind=ConfigMap): .foo: field not declared in schema`},
		"type":            {a, applyPatch, cmIntent(`,"data":5`), 400, ""},
		"name":            {a, applyPatch, cmIntent(`,"metadata":{"name":"b"}`), 400, "the name of the object (b) does not match the name on the URL (a)"},
		"namespace":       {a, applyPatch, cmIntent(`,"metadata":{"namespace":"other"}`), 400, ""},
		"revision":        {a, applyPatch, cmIntent(`,"metadata":{"resourceVersion":"1000"}`), 409, ""},
		"uid":             {a, applyPatch, cmIntent(`,"metadata":{"uid":"x"}`), 422, ""},
		"uid of none": {other, applyPatch, cmIntent(`,"metadata":{"name":"b","uid":"x"}`), 409,
			`Operation cannot be fulfilled on configmaps "b": uid mismatch: the provided object specified uid x, and no existing object was found`},
		"no name":       {other, applyPatch, cmIntent(""), 400, "the name of the object (b based on URL) was undeterminable: name must be provided"},
		"invalid":       {a, applyPatch, cmIntent(`,"metadata":{"finalizers":["bare"]}`), 422, ""},
		"strict":        {a + "&fieldValidation=Strict", applyPatch, "apiVersion: v1\nkind: ConfigMap\ndata: {a: b, a: c}\n", 400, "error strict decoding patch: ..."},
		"label":         {a, applyPatch, cmIntent(`,"metadata":{"labels":{"l":"no value!"}}`), 422, ""},
		"Go type":       {a, applyPatch, cmIntent(`,"binaryData":{"k":"!"}`), 400, ""}, // the schema permits it
		"Go type, new":  {other, applyPatch, cmIntent(`,"metadata":{"name":"b"},"binaryData":{"k":"!"}`), 400, ""},
		"missing scale": {widgetsPath + "/none/scale" + manager, applyPatch, scale + `}`, 404, ""},
		"conflict": {scaleW + manager, applyPatch, scale + `,"metadata":{"name":"w"},"spec":{"replicas":2}}`, 409,
			`Apply failed with 1 conflict: conflict with "creator" using autoscaling/v1: .spec.replicas`},
		"field of scale": {scaleW + manager, applyPatch, scale + `,"spec":{"foo":2}}`, 400, ""},
		"kind of scale":  {scaleW + manager, applyPatch, `{"apiVersion":"example.com/v1","kind":"Widget"}`, 400, "invalid object type: example.com/v1, Kind=Widget"},
	})
}

func TestRejectedDeletes(t *testing.T) {
	b := newBench(t)
	made := b.create(bare("a"))
	precondition := func(field, want, got string) string {
		return fmt.Sprintf(`Operation cannot be fulfilled on ConfigMap "a": the %s in the precondition (%s) does not match the %s in record (%s). The object might have been `, field, want, field, got)
	}
	b.rejects(t, "DELETE", map[string]rejection{
		"uid":                   {configMapA, "", `{"preconditions":{"uid":"x"}}`, 409, precondition("UID", "x", string(made.UID)) + "deleted and then recreated"},
		"revision":              {configMapA, "", `{"preconditions":{"resourceVersion":"1234567"}}`, 409, precondition("ResourceVersion", "1234567", made.ResourceVersion) + "modified"},
		"dry run of another":    {configMapA + "?dryRun=All", "", `{"dryRun":["All"],"preconditions":{"uid":"x"}}`, 409, ""},
		"policy":                {configMapA + "?propagationPolicy=x", "", "", 422, ""},
		"policy and orphan":     {configMapA, "", `{"propagationPolicy":"Orphan","orphanDependents":true}`, 422, ""},
		"dry run":               {configMapA + "?dryRun=x", "", "", 422, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`},
		"grace":                 {configMapA + "?gracePeriodSeconds=x", "", "", 400, ""},
		"no JSON":               {configMapA, "", "{", 400, ""},
		"another kind":          {configMapA, "", `{"kind":"ConfigMap","apiVersion":"v1"}`, 400, ""},
		"no apiVersion":         {configMapA, "", `{"kind":"DeleteOptions","apiVersion":"a/b/c"}`, 400, ""},
		"unreadable and grace":  {configMapA, "", `{"ignoreStoreReadErrorWithClusterBreakingPotential":true,"gracePeriodSeconds":0}`, 422, ""},
		"in other letters":      {configMapA, "", `{"PropagationPolicy":"x","preconditions":{"uid":"x"}}`, 409, ""},
		"unreadable collection": {configMaps, "", `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, 422, ""},
		"collection by uid":     {configMaps, "", `{"preconditions":{"uid":"x"}}`, 409, ""},
	})
	b.send("DELETE", configMapA, `{"preconditions":{"uid":"`+string(made.UID)+`","resourceVersion":"`+made.ResourceVersion+`"}}`).want(200, "")
}
