package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

const (
	cborType  = "application/cbor"
	applyCBOR = "application/apply-patch+cbor"
)

func withCBOR(cfg *Config, _ *bench) { cfg.CBOR = true }

// inCBOR returns the CBOR of a JSON value, as client-go sends it.
func inCBOR(t testing.TB, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	data, err := direct.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fromCBOR returns an answer in CBOR as if it had come in JSON.
func fromCBOR(a answer) answer {
	a.t.Helper()
	var value any
	if err := direct.Unmarshal(a.body, &value); err != nil || !bytes.HasPrefix(a.body, []byte("\xd9\xd9\xf7")) || a.Header.Get("Content-Type") != cborType {
		a.t.Fatalf("%v in %s %q", err, a.Header.Get("Content-Type"), a.body)
	}
	a.body, _ = json.Marshal(value)
	return a
}

// Objects, lists, errors and results of writes are the same in CBOR as in JSON, for kinds with
// and without Go types.
func TestResponsesInCBOR(t *testing.T) {
	t.Parallel()
	b := newBench(t, withCBOR)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	b.put(b.configMaps, resttest.ConfigMap("b"))
	b.put(b.secrets, resttest.Secret("s"))
	b.widget(`{"replicas":3,"f":1.5,"n":null,"text":"\u0000<é>"}`)
	for _, path := range []string{
		configMapA, configMaps, configMaps + "?limit=1", inDefault + "secrets", inDefault + "secrets?fieldSelector=metadata.name=x", inDefault + "secrets/s",
		widgetW, widgetsPath, scaleW, widgetW + "/status", configMaps + "/none", configMaps + "?watch=1&resourceVersionMatch=x",
	} {
		want := b.send("GET", path, nil)
		got := fromCBOR(b.send("GET", path, nil, "Accept", "application/json;q=0.9,application/cbor;q=1"))
		if x, y := *read(got, new(any)), *read(want, new(any)); got.code != want.code || !reflect.DeepEqual(x, y) {
			t.Errorf("%s: got %d\n%s\nwant %d\n%s", path, got.code, got.body, want.code, want.body)
		}
	}
	for path, kind := range map[string]string{configMapA: "PartialObjectMetadata", configMaps: "PartialObjectMetadataList", widgetsPath: "PartialObjectMetadataList"} {
		const as = ";g=meta.k8s.io;v=v1;as="
		want, got := b.send("GET", path, nil, "Accept", "application/json"+as+kind), fromCBOR(b.send("GET", path, nil, "Accept", cborType+as+kind))
		if x, y := *read(got, new(any)), *read(want, new(any)); !reflect.DeepEqual(x, y) || got.meta().Kind != kind {
			t.Errorf("%s of %s: got\n%s\nwant\n%s", kind, path, got.body, want.body)
		}
	}
	in := []string{"Content-Type", cborType, "Accept", cborType}
	body := inCBOR(t, `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	if cm := fromCBOR(b.send("POST", configMaps, body, in...)).want(201, "").configMap(); cm.UID == "" || cm.Data["k"] != "v" {
		t.Errorf("created %+v", cm)
	}
	fromCBOR(b.send("POST", configMaps, body, in...)).want(409, `configmaps "c" already exists`)
	fromCBOR(b.send("DELETE", configMaps+"/c", inCBOR(t, `{"preconditions":{"uid":"x"}}`), in...)).want(409, "")
	if s := fromCBOR(b.send("DELETE", configMaps+"/c", inCBOR(t, `{"gracePeriodSeconds":0}`), in...)).want(200, "").status(); s.Status != metav1.StatusSuccess {
		t.Errorf("deleted: %+v", s)
	}
	fromCBOR(b.send("DELETE", configMaps, nil, in...)).want(200, "")
	fromCBOR(b.send("PUT", scaleW, inCBOR(t, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":4}}`), in...)).want(200, "")
	if n := b.send("GET", scaleW, nil).scale().Spec.Replicas; n != 4 {
		t.Errorf("scaled to %d", n)
	}
}

// An apply patch in CBOR does what it does in YAML; other patches have no form in CBOR.
func TestApplyInCBOR(t *testing.T) {
	t.Parallel()
	b := newTrackedBench(t, withCBOR)
	intent := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"\u007fno YAML"}}`
	b.patch(configMapA, applyCBOR, "one", inCBOR(t, intent)).want(201, "").wantOwners("one Apply v1 .data.k")
	b.patch(configMapA, applyCBOR, "two", inCBOR(t, strings.Replace(intent, "no", "other", 1))).want(409, "")
	b.patch(configMapA+"?force=true", applyCBOR, "two", inCBOR(t, intent)).want(200, "")
	b.patch(configMapA, applyCBOR, "one", "\xff").want(400, "")
	b.patch(configMapA, mergePatch, "one", inCBOR(t, `{}`)).want(400, "")
	b.patch(widgetW, applyCBOR, "one", inCBOR(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"replicas":1}}`)).want(201, "")
	const accepted = unknownFormat + jsonPatch + ", " + mergePatch + ", " + applyPatch + ", " + applyCBOR
	b.patch(widgetW, strategicPatch, "one", "{}").want(415, accepted)
}

// A watch in CBOR is a sequence of events that upstream's decoder reads, and a watch in JSON of
// the same objects has its own.
func TestWatchInCBOR(t *testing.T) {
	t.Parallel()
	storage := memstore.New()
	kind := resttest.ConfigMaps()
	res := &rest.Resource{Kind: kind, Store: storage.Store(&kind.Info)}
	b := newBench(t, withCBOR, func(c *Config, _ *bench) { c.Resources = []*rest.Resource{res} })
	first := b.put(res, resttest.ConfigMap("a"))
	w, inJSON := b.watch(configMaps+"?watch=1", "application/json;q=0.9,application/cbor;q=1"), b.watch(configMaps+"?watch=1", "")
	if got := w.resp.Header.Get("Content-Type"); got != "application/cbor-seq" {
		t.Errorf("Content-Type %s", got)
	}
	next := func(frames io.Reader) string {
		t.Helper()
		frame, event, object := make([]byte, 1<<16), metav1.WatchEvent{}, map[string]any{}
		n, err := frames.Read(frame)
		if err == nil {
			err = direct.Unmarshal(frame[:n], &event)
		}
		if err == nil {
			err = direct.Unmarshal(event.Object.Raw, &object)
		}
		if err != nil {
			t.Fatalf("%v in %q", err, frame[:n])
		}
		return fmt.Sprint(event.Type, " ", object["kind"], " ", object["metadata"].(map[string]any)["name"], object["code"])
	}
	frames := cbor.NewFramer().NewFrameReader(w.resp.Body)
	sees := func(want string) {
		t.Helper()
		if got := next(frames); got != want+"<nil>" {
			t.Errorf("event %q, want %q", got, want)
		}
		inJSON.expect(want)
	}
	sees("ADDED ConfigMap a")
	b.put(res, resttest.ConfigMap("b"))
	sees("ADDED ConfigMap b")
	b.remove(res, "a")
	sees("DELETED ConfigMap a")
	storage.Compact(storage.Revision())
	gone := b.watch(configMaps+"?watch=1&resourceVersion="+strconv.FormatInt(first.Revision, 10), cborType)
	if got := next(cbor.NewFramer().NewFrameReader(gone.resp.Body)); got != "ERROR Status <nil> 410" {
		t.Errorf("event %q", got)
	}
}

// What is not CBOR, or has no value in JSON, is a 400; what would take much memory is a 413.
func TestMalformedCBOR(t *testing.T) {
	b := newBench(t, withCBOR)
	for name, c := range map[string]struct {
		body string
		code int
	}{
		"JSON":                       {`{"metadata":{"name":"a"}}`, 400},
		"a number":                   {"\x01", 400},
		"nothing":                    {"", 400},
		"two objects":                {"\xa0\xa0", 400},
		"a duplicate key":            {"\xa2\x61a\x01\x61a\x02", 400},
		"a key twice, as bytes too":  {"\xa2\x61a\x01\x41a\x02", 400},
		"a key that is a number":     {"\xa1\x01\x01", 400},
		"text that is not UTF-8":     {"\xa1\x61a\x61\xff", 400},
		"no number":                  {"\xa1\x61a\xf9\x7e\x00", 400},
		"infinity":                   {"\xa1\x61a\xf9\x7c\x00", 400},
		"a large number":             {"\xa1\x61a\x1b\xff\xff\xff\xff\xff\xff\xff\xff", 400},
		"a larger number":            {"\xa1\x61a\xc2\x49\x01\x00\x00\x00\x00\x00\x00\x00\x00", 400},
		"undefined":                  {"\xa1\x61a\xf7", 400},
		"a text without its end":     {"\xa1\x61a\x7a\xff\xff\xff\xffabc", 400},
		"an array without its end":   {"\xa1\x61a\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", 400},
		"a map without its end":      {"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff", 400},
		"arrays without their ends":  {"\xa1\x61a" + strings.Repeat("\x9a\x00\x00\x10\x00", 5000), 413},
		"nested arrays":              {"\xa1\x61a" + strings.Repeat("\x81", 20_000) + "\x01", 400},
		"nested tags":                {"\xa1\x61a" + strings.Repeat("\xc1", 20_000) + "\x01", 400},
		"many nested arrays":         {"\xa1\x61a" + strings.Repeat("\x9f", 1<<20), 413},
		"many values":                {"\xa1\x61a\x9f" + strings.Repeat("\x01", 1<<20) + "\xff", 413},
		"text that JSON writes long": {"\xa1\x61a\x7a\x00\x20\x00\x00" + strings.Repeat("\x00", 2<<20), 413},
		"bytes that are no text":     {"\xa1\x61a\x5a\x00\x20\x00\x00" + strings.Repeat("\xff", 2<<20), 413},
		"bytes in hexadecimal":       {"\xa1\x61a\xd7\x5a\x00\x20\x00\x00" + strings.Repeat("a", 2<<20), 413},
	} {
		var start, end runtime.MemStats
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", configMaps, strings.NewReader(c.body))
		r.Header.Set("Content-Type", cborType)
		runtime.ReadMemStats(&start)
		asUser(b.api, &resource.User{Name: "jane"})(w, r)
		runtime.ReadMemStats(&end)
		if w.Code != c.code {
			t.Errorf("%s: got %d, want %d: %.300s", name, w.Code, c.code, w.Body)
		}
		if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 32 {
			t.Errorf("%s: %d MB were allocated", name, used)
		}
	}
}

// Without the feature gate CBOR is a 415 and a 406, and nothing is written.
func TestWithoutCBOR(t *testing.T) {
	t.Parallel()
	b := newTrackedBench(t)
	const types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	b.send("POST", configMaps, inCBOR(t, `{"metadata":{"name":"a"}}`), "Content-Type", cborType).want(415, unknownFormat+types)
	b.send("POST", configMaps, `{"metadata":{"name":"a"}}`, "Accept", cborType).want(406, "only the following media types are accepted: "+types)
	b.send("GET", configMapA, nil).want(404, "")
	b.create(bare("a"))
	b.send("DELETE", configMapA, inCBOR(t, `{}`), "Content-Type", cborType).want(415, unknownFormat+types)
	b.patch(configMapA, applyCBOR, "m", inCBOR(t, `{}`)).want(415, unknownFormat+jsonPatch+", "+mergePatch+", "+strategicPatch+", "+applyPatch)
	b.send("GET", configMaps, nil, "Accept", cborType).want(406, "")
	b.send("GET", configMaps+"?watch=1", nil, "Accept", cborType).want(406, "")
}
