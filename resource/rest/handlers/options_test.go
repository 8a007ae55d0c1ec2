package handlers

import (
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

const invalid = `ListOptions.meta.k8s.io "" is invalid: `

// checkOptions compares the options, or the error, that a query results in.
func checkOptions[T any](t *testing.T, query string, got T, err error, want T, message string) {
	t.Helper()
	switch {
	case message != "" && (err == nil || err.Error() != message):
		t.Errorf("%s: error\n%v, want\n%s", query, err, message)
	case message == "" && (err != nil || !reflect.DeepEqual(got, want)):
		t.Errorf("%s: got %+v, %v, want %+v", query, got, err, want)
	}
}

// The query parameters of a list select a point in history and a page (docs/wire.md 5.2).
func TestListOptions(t *testing.T) {
	res := &rest.Resource{Kind: resttest.ConfigMaps()}
	valid := resource.EncodeContinue(5, "a")
	_, _, badContinue := resource.DecodeContinue("x")
	badToken, notAllowed := badContinue.Error(), "specifying resource version is not allowed when using continue"
	at := func(f resource.Freshness, rev int64) resource.At { return resource.At{Freshness: f, Revision: rev} }
	for _, c := range []struct {
		query string
		at    resource.At
		limit int64
		err   string
	}{
		{query: "", at: at(resource.Latest, 0)},
		{query: "limit=5", at: at(resource.Latest, 0), limit: 5},
		{query: "limit=-5", at: at(resource.Latest, 0)},
		{query: "resourceVersion=0&limit=5", at: at(resource.Any, 0)},
		{query: "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5", at: at(resource.Any, 0)},
		{query: "resourceVersion=7", at: at(resource.NotOlderThan, 7)},
		{query: "resourceVersion=7&limit=5", at: at(resource.Exact, 7), limit: 5},
		{query: "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan", at: at(resource.NotOlderThan, 7), limit: 5},
		{query: "resourceVersion=7&resourceVersionMatch=Exact", at: at(resource.Exact, 7)},
		{query: "continue=x&limit=5", limit: 5},
		{query: "continue=x&resourceVersion=0&limit=5", limit: 5},
		{query: "continue=" + valid + "&resourceVersion=7", err: notAllowed},
		{query: "continue=" + valid + "&resourceVersion=x", err: notAllowed},
		{query: "continue=x&resourceVersion=7", err: badToken},
		{query: "continue=x&resourceVersion=x", err: badToken},
		{query: "continue=x&resourceVersion=x&resourceVersionMatch=Exact", err: invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided`},
		{query: "resourceVersion=x&resourceVersionMatch=Newer", err: invalid + `resourceVersionMatch: Unsupported value: "Newer": supported values: "Exact", "NotOlderThan", ""`},
		{query: "resourceVersion=x", err: `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{query: "resourceVersion=-1", err: `invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax`},
		{query: "limit=", err: `strconv.ParseInt: parsing "": invalid syntax`},
		{query: "timeoutSeconds=&limit=5", err: `strconv.ParseInt: parsing "": invalid syntax`},
		{query: "resourceVersionMatch=Exact&resourceVersion=00", err: invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{query: "limit=x", err: `strconv.ParseInt: parsing "x": invalid syntax`},
		{query: "resourceVersionMatch=Exact", err: invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`},
		{query: "resourceVersionMatch=Exact&resourceVersion=0", err: invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{query: "resourceVersionMatch=Exact&resourceVersion=7&continue=x", err: invalid + `resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided`},
		{query: "resourceVersionMatch=Newer&resourceVersion=7", err: invalid + `resourceVersionMatch: Unsupported value: "Newer": supported values: "Exact", "NotOlderThan", ""`},
		{query: "sendInitialEvents=false", err: invalid + `sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list`},
	} {
		r := httptest.NewRequest("GET", "/api/v1/configmaps?"+c.query, nil)
		got, err := listOptions(r, resource.ParseAction(r), res)
		got.Continue = ""
		checkOptions(t, c.query, got, err, resource.ListOptions{At: c.at, Limit: c.limit}, c.err)
	}
}

// The query parameters of a watch select its first events (docs/wire.md 5.5, 5.6).
func TestWatchOptions(t *testing.T) {
	res := &rest.Resource{Kind: resttest.ConfigMaps()}
	for _, c := range []struct {
		query string
		want  resource.WatchOptions
		err   string
	}{
		{query: "watch=1", want: resource.WatchOptions{InitialEvents: true}},
		{query: "watch=1&resourceVersion=0", want: resource.WatchOptions{InitialEvents: true, At: resource.At{Freshness: resource.Any}}},
		{query: "watch=1&resourceVersion=7&allowWatchBookmarks=true", want: resource.WatchOptions{Since: 7, Bookmarks: true}},
		{query: "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7",
			want: resource.WatchOptions{InitialEvents: true, At: resource.At{Freshness: resource.NotOlderThan, Revision: 7}}},
		{query: "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", want: resource.WatchOptions{}},
		{query: "watch=1&resourceVersion=1e3", err: `resourceVersion: Invalid value: "1e3": strconv.ParseUint: parsing "1e3": invalid syntax`},
		{query: "watch=1&sendInitialEvents=true", err: invalid + "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"},
		{query: "watch=1&resourceVersionMatch=NotOlderThan", err: invalid + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"},
		{query: "watch=1&timeoutSeconds=soon", err: `strconv.ParseInt: parsing "soon": invalid syntax`},
	} {
		r := httptest.NewRequest("GET", "/api/v1/configmaps?"+c.query, nil)
		q, err := parseListQuery(r.URL.Query(), true)
		var got resource.WatchOptions
		if err == nil {
			got, err = q.watchOptions(resource.ParseAction(r), res)
		}
		checkOptions(t, c.query, got, err, c.want, c.err)
	}
}

func TestTimeoutSecondsCannotOverflow(t *testing.T) {
	r := httptest.NewRequest("GET", "/?timeoutSeconds=9223372036854775807", nil)
	q, err := parseListQuery(r.URL.Query(), true)
	if err != nil || q.timeout() <= time.Hour {
		t.Fatalf("timeout %v", err)
	}
}

func TestSelector(t *testing.T) {
	plain, labelled := resttest.ConfigMaps(), resttest.Secrets()
	for _, c := range []struct {
		name                 string
		kind                 *rest.Kind
		labels, fields, item string
		err                  string
	}{
		{name: "nothing", kind: plain},
		{name: "labels", kind: plain, labels: "a=b,!c,d in (e,f),g>1"},
		{name: "own field", kind: labelled, fields: "type=Opaque,metadata.name!=x"},
		{name: "item agrees", kind: plain, fields: "metadata.name=x", item: "x"},
		{name: "bad labels", kind: plain, labels: "a in (", err: "unable to parse requirement: found '', expected: ',', ')' or identifier"},
		{name: "bad fields", kind: plain, fields: "a", err: "invalid selector: 'a'; can't understand 'a'"},
		{name: "unknown field", kind: plain, fields: "spec.x=1", err: `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{name: "unknown field of a kind with fields", kind: labelled, fields: "spec.x=1", err: "field label not supported: spec.x"},
		{name: "item differs", kind: plain, fields: "metadata.name=y", item: "x", err: "fieldSelector metadata.name doesn't match requested name"},
		{name: "item and another field", kind: labelled, fields: "type=Opaque", item: "x", err: "fieldSelector metadata.name doesn't match requested name"},
	} {
		_, err := c.kind.Selector("v1", c.labels, c.fields, c.item)
		checkOptions(t, c.name, 0, err, 0, c.err)
	}
}
