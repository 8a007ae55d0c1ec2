package crd

import (
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
	"portico/resource/rest"
)

// doubted has what drafts might treat in their own way: embedded objects,
// defaults, values that may be null, rules about the name, texts in sets.
const doubted = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doubts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: doubts, kind: Doubt}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          metadata: {type: object, properties: {name: {type: string, maxLength: 20}}}
          embedded: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
          free: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, properties: {phase: {type: string}}}
          with:
            type: object
            properties:
              given: {type: string, default: x}
              both: {type: string, nullable: true, default: x}
          spec:
            type: object
            properties:
              text: {type: string}
              count: {type: integer, format: int64}
              ratio: {type: number}
              port: {x-kubernetes-int-or-string: true}
              maybe: {type: string, nullable: true}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              numbers: {type: array, x-kubernetes-list-type: set, items: {type: number}}
              keyed:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id, num]
                items: {type: object, required: [id, num], properties: {id: {type: string}, num: {type: number}}}
`

// doubtfulBodies are those of which one may doubt that a draft is made of them as
// rightly as an object, by what goes between apiVersion and the end.
func doubtfulBodies() map[string]string {
	meta := func(more string) string { return `"metadata":{"name":"a"` + more + `}` }
	spec := func(fields string) string { return meta("") + `,"spec":{` + fields + `}` }
	return map[string]string{
		"plain":                               spec(`"text":"x"`),
		"labels twice":                        meta(`,"labels":{"a":"1"},"labels":{"b":"2"}`),
		"a label twice":                       meta(`,"labels":{"a":"1","a":"2"}`),
		"a name twice":                        meta(`,"name":"b"`),
		"metadata twice":                      meta("") + `,` + meta(`,"labels":{"a":"b"}`),
		"spec twice":                          spec(`"text":"x"`) + `,"spec":{"count":1}`,
		"a field twice":                       spec(`"text":"x","text":"y"`),
		"a field twice, out of order":         spec(`"text":"x","count":1,"text":"y"`),
		"a free field twice":                  meta("") + `,"free":{"b":1,"a":2,"b":3}`,
		"kind twice":                          meta("") + `,"kind":"Doubt"`,
		"escaped metadata":                    `"\u006detadata":{"name":"a"}`,
		"metadata, and escaped":               meta("") + `,"\u006detadata":{"name":"b"}`,
		"escaped name":                        `"metadata":{"\u006eame":"a"}`,
		"escaped field":                       spec(`"t\u0065xt":"x"`),
		"field, and escaped":                  spec(`"text":"x","t\u0065xt":"y"`),
		"escaped value":                       spec(`"text":"\u0041\u00e9\u2028\/\b\u003c"`),
		"surrogates":                          spec(`"text":"\ud83d\ude00"`),
		"half a surrogate":                    spec(`"text":"\ud83d"`),
		"invalid UTF-8":                       spec("\"text\":\"\xff\""),
		"invalid UTF-8 in a key":              meta("") + ",\"free\":{\"\xff\":1}",
		"invalid UTF-8 in an annotation":      meta(",\"annotations\":{\"a\":\"\xc3\x28\"}"),
		"a control character":                 spec("\"text\":\"\x01\""),
		"the key of case":                     `"Metadata":{"name":"a"}`,
		"an int64":                            spec(`"count":9223372036854775807`),
		"above an int64":                      spec(`"count":9223372036854775808`),
		"far above":                           meta("") + `,"free":{"n":123456789012345678901234567890}`,
		"1e400":                               meta("") + `,"free":{"n":1e400}`,
		"1e3":                                 spec(`"count":1e3`),
		"1E+2":                                meta("") + `,"free":{"n":1E+2}`,
		"-0":                                  spec(`"count":-0`),
		"-0.0":                                spec(`"ratio":-0.0`),
		"1.0":                                 spec(`"count":1.0`),
		"1.50":                                spec(`"ratio":1.50`),
		"many digits":                         spec(`"ratio":0.1000000000000000055511151231257827`),
		"a small number":                      spec(`"ratio":0.0000001`),
		"a leading zero":                      spec(`"count":01`),
		"a number alone":                      meta("") + `,"free":{"n":-}`,
		"no metadata":                         `"spec":{}`,
		"metadata null":                       `"metadata":null`,
		"metadata empty":                      `"metadata":{}`,
		"metadata a list":                     `"metadata":[]`,
		"name a number":                       `"metadata":{"name":5}`,
		"name empty":                          `"metadata":{"name":""}`,
		"name and generateName":               meta(`,"generateName":"b-"`),
		"generateName a number":               meta(`,"generateName":5`),
		"name not valid":                      `"metadata":{"name":"A_b"}`,
		"name too long":                       `"metadata":{"name":"` + strings.Repeat("a", 254) + `"}`,
		"name too long for the schema":        `"metadata":{"name":"` + strings.Repeat("a", 21) + `"}`,
		"labels null":                         meta(`,"labels":null`),
		"labels empty":                        meta(`,"labels":{}`),
		"labels a list":                       meta(`,"labels":[]`),
		"a label a number":                    meta(`,"labels":{"a":1}`),
		"a label null":                        meta(`,"labels":{"a":null}`),
		"a label not valid":                   meta(`,"labels":{"a b":"c d"}`),
		"annotations too large":               meta(`,"annotations":{"a":"` + strings.Repeat("x", 262144) + `"}`),
		"annotations as large as can be":      meta(`,"annotations":{"a":"` + strings.Repeat("x", 262143) + `"}`),
		"annotation key in capitals":          meta(`,"annotations":{"A.B/C":"x"}`),
		"unknown in metadata":                 meta(`,"unknown":"x"`),
		"unknown":                             spec(`"unknown":"x"`),
		"unknown, empty":                      meta("") + `,"unknown":{}`,
		"selfLink":                            meta(`,"selfLink":"/x"`),
		"uid":                                 meta(`,"uid":"x"`),
		"generation":                          meta(`,"generation":7`),
		"generation 0":                        meta(`,"generation":0`),
		"creationTimestamp":                   meta(`,"creationTimestamp":"2001-02-03T04:05:06Z"`),
		"creationTimestamp null":              meta(`,"creationTimestamp":null`),
		"creationTimestamp not one":           meta(`,"creationTimestamp":"yesterday"`),
		"creationTimestamp elsewhere":         meta(`,"creationTimestamp":"2001-02-03T04:05:06+02:00"`),
		"deletionTimestamp":                   meta(`,"deletionTimestamp":"2001-02-03T04:05:06Z"`),
		"deletionTimestamp null":              meta(`,"deletionTimestamp":null`),
		"deletionGracePeriodSeconds":          meta(`,"deletionGracePeriodSeconds":5`),
		"resourceVersion":                     meta(`,"resourceVersion":"5"`),
		"resourceVersion 0":                   meta(`,"resourceVersion":"0"`),
		"resourceVersion not one":             meta(`,"resourceVersion":"x"`),
		"managedFields":                       meta(`,"managedFields":[{"manager":"m","operation":"Update","apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{}}]`),
		"managedFields empty":                 meta(`,"managedFields":[]`),
		"managedFields null":                  meta(`,"managedFields":null`),
		"an owner":                            meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]`),
		"an owner without uid":                meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n"}]`),
		"an owner with an empty uid":          meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":""}]`),
		"an owner null":                       meta(`,"ownerReferences":[null]`),
		"an Event for an owner":               meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"n","uid":"u"}]`),
		"an owner twice":                      meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"},{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]`),
		"two controllers":                     meta(`,"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":true},{"apiVersion":"v1","kind":"K","name":"m","uid":"v","controller":true}]`),
		"a finalizer":                         meta(`,"finalizers":["example.com/x"]`),
		"an unqualified finalizer":            meta(`,"finalizers":["x"]`),
		"a finalizer not valid":               meta(`,"finalizers":["a b"]`),
		"a finalizer a number":                meta(`,"finalizers":[1]`),
		"contradictory finalizers":            meta(`,"finalizers":["orphan","foregroundDeletion"]`),
		"finalizers empty":                    meta(`,"finalizers":[]`),
		"another namespace":                   meta(`,"namespace":"other"`),
		"the namespace":                       meta(`,"namespace":"default"`),
		"embedded":                            meta("") + `,"embedded":{"apiVersion":"v1","kind":"K","metadata":{"name":"b","labels":{"a":"b"}},"x":{"y":null}}`,
		"embedded, unknown in metadata":       meta("") + `,"embedded":{"apiVersion":"v1","kind":"K","metadata":{"name":"b","unknown":1}}`,
		"embedded, null in metadata":          meta("") + `,"embedded":{"apiVersion":"v1","kind":"K","metadata":{"name":"b","creationTimestamp":null}}`,
		"embedded, no kind":                   meta("") + `,"embedded":{"apiVersion":"v1"}`,
		"embedded, not valid":                 meta("") + `,"embedded":{"apiVersion":"v1","kind":"K","metadata":{"name":"A_b"}}`,
		"a field null":                        spec(`"text":null`),
		"a field that may be null":            spec(`"maybe":null`),
		"null with a default":                 meta("") + `,"with":{"given":null}`,
		"null that may be, with a default":    meta("") + `,"with":{"both":null,"given":"y"}`,
		"a default not given":                 meta("") + `,"with":{"given":"y"}`,
		"all defaults given":                  meta("") + `,"with":{"given":"y","both":"z"}`,
		"spec null":                           meta("") + `,"spec":null`,
		"status":                              meta("") + `,"status":{"phase":"x"}`,
		"all is given":                        spec(`"text":"x","count":1,"ratio":1.5,"port":"http"`),
		"a port":                              spec(`"port":80`),
		"a port and a half":                   spec(`"port":80.5`),
		"a set":                               spec(`"set":["b","a","<é>","\"","\\","\u2028","\u007f"]`),
		"a set with one twice":                spec(`"set":["a","\u0061"]`),
		"numbers":                             spec(`"numbers":[2,1.5,-1,0.25]`),
		"a number twice":                      spec(`"numbers":[1,1.0]`),
		"keyed":                               spec(`"keyed":[{"id":"<\"é\">","num":1.5},{"id":"a","num":2},{"num":1,"id":"a"}]`),
		"keyed, one twice":                    spec(`"keyed":[{"id":"a","num":2},{"num":2,"id":"a"}]`),
		"keys that sort as they are not read": meta("") + `,"free":{"b":1,"B":2,"a-":3,"a":4,"a.b":5,"aa":6,"":7}`,
		"keys with odd characters":            meta("") + `,"free":{"a<b":1,"é":2,"a/b":3,"a\"b":4,"a\\":5}`,
		"behind the end":                      meta("") + `} {`,
		"a comma too many":                    meta("") + `,`,
	}
}

// A draft is stored, answered and warned about as the object would be that is
// made in the usual way, whatever there is about it and however it is asked for.
func TestDoubtfulDrafts(t *testing.T) {
	s := running(t)
	s.install(t, doubted)
	queries := []string{
		"", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldValidation=Warn",
		"fieldManager=" + url.QueryEscape(`a "b" <c> é\`), "fieldManager=" + url.QueryEscape("a\u2028b"), "fieldManager=" + strings.Repeat("m", 129),
		"fieldManager=%ff", "fieldManager=a%00b", "fieldValidation=Odd",
	}
	drafts := 0
	compare := func(t *testing.T, path, body string) {
		was := false
		code, text, warnings := s.answerTo(t, path, []byte(body), true, &was)
		usualCode, usual, usualWarnings := s.answerTo(t, path, []byte(body), false, nil)
		if code != usualCode || text != usual || !slices.Equal(warnings, usualWarnings) {
			t.Errorf("%s of %.200s\nas a draft %d %.900s %q\notherwise  %d %.900s %q", path, body, code, text, warnings, usualCode, usual, usualWarnings)
		}
		if was && code == 201 {
			drafts++
		}
	}
	const path = "/apis/example.com/v1/namespaces/default/doubts?dryRun=All&"
	for name, fields := range doubtfulBodies() {
		t.Run(name, func(t *testing.T) {
			for _, query := range queries {
				compare(t, path+query, `{"apiVersion":"example.com/v1","kind":"Doubt",`+fields+`}`)
			}
		})
	}
	for _, ofKind := range []string{
		`"apiVersion":"example.com/v2","kind":"Doubt"`, `"apiVersion":"example.com/v1","kind":"Draft"`, `"apiVersion":"example.com/v1","kind":"doubt"`,
		`"apiVersion":"example.com/v1"`, `"kind":"Doubt"`, `"apiVersion":"","kind":""`, `"apiVersion":"v1","kind":"Doubt"`, `"apiVersion":"a/b/c","kind":"Doubt"`,
		`"apiVersion":1,"kind":"Doubt"`, `"kind":"Doubt","apiVersion":"example.com/v1","APIVersion":"x"`,
	} {
		compare(t, path, `{`+ofKind+`,"metadata":{"name":"a"}}`)
	}
	compare(t, "/apis/example.com/v1/namespaces/going/doubts?dryRun=All", `{"apiVersion":"example.com/v1","kind":"Doubt","metadata":{"name":"a"}}`)
	s.must(t, "POST", strings.TrimSuffix(path, "?dryRun=All&"), "", `{"apiVersion":"example.com/v1","kind":"Doubt","metadata":{"name":"a"}}`)
	for _, more := range []string{"", `,"generateName":"b-"`, `,"finalizers":["x"]`} {
		compare(t, path, `{"apiVersion":"example.com/v1","kind":"Doubt","metadata":{"name":"a"`+more+`}}`)
	}
	t.Logf("%d drafts", drafts)
	if drafts < 100 {
		t.Errorf("only %d of all were drafts", drafts)
	}
}

// told keeps the last event of audit.
type told struct{ last *auditapi.Event }

func (e *told) ProcessEvents(all ...*auditapi.Event) bool {
	e.last = all[len(all)-1].DeepCopy()
	return true
}

// Audit is told of an object that the path does not name, also of a draft, and
// with the uid that was sent.
func TestAuditIsToldOfDrafts(t *testing.T) {
	s := running(t)
	s.install(t, drafted)
	ctx, sink := audit.WithAuditContext(t.Context()), &told{}
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, sink); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/apis/example.com/v1/namespaces/default/drafts",
		strings.NewReader(`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"u"}}`)).WithContext(ctx)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w := httptest.NewRecorder()
	rest.New(rest.Config{Lookup: s.lookup}).ServeHTTP(w, r.WithContext(resource.WithAction(ctx, act)))
	audit.AuditContextFrom(ctx).ProcessEventStage(ctx, auditapi.StageResponseComplete)
	if ref := sink.last.ObjectRef; w.Code != 201 || ref == nil || ref.Name != "a" || ref.UID != "u" {
		t.Errorf("%d; told of %+v", w.Code, ref)
	}
}
