package attack

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
)

// readings returns the paths and queries that servers may derive from a request target:
// unchanged, unescaped, with dots and empty segments resolved, with backslashes as slashes,
// and without the parameters of segments.
func readings(uri string) []string {
	escaped, query, _ := strings.Cut(uri, "?")
	text, err := url.PathUnescape(escaped)
	if err != nil {
		text = escaped
	}
	// The query begins at the first question mark that is not escaped.
	text = strings.ReplaceAll(text, "?", "%3F")
	all := []string{escaped, text}
	slashes := strings.ReplaceAll(text, `\`, "/")
	all = append(all, slashes, strings.Split(text, "\x00")[0])
	var bare []string
	for segment := range strings.SplitSeq(slashes, "/") {
		name, _, _ := strings.Cut(segment, ";")
		bare = append(bare, name)
	}
	all = append(all, strings.Join(bare, "/"))
	for _, reading := range slices.Clone(all) {
		all = append(all, path.Clean(reading))
	}
	for n := range all {
		all[n] += "?" + strings.ReplaceAll(query, ";", "&")
	}
	return all
}

// within returns an error if a server could read a request as one for another path than
// root or an object directly below it. The methods are those of an object, then of the
// list.
func within(r *request, root string, object, list []string) error {
	for _, reading := range readings(r.uri) {
		where, query, _ := strings.Cut(reading, "?")
		values, _ := url.ParseQuery(query)
		rest, found := strings.CutPrefix(where, root)
		name := strings.Trim(rest, "/")
		methods := object
		if name == "" {
			methods = list
		}
		switch {
		case !found || rest != "" && rest[0] != '/' || strings.Contains(name, "/"):
			return fmt.Errorf("%s could be read as %s", r.uri, where)
		case values.Has("watch") && !slices.Contains([]string{"0", "false"}, values.Get("watch")):
			return fmt.Errorf("%s could be read as a watch", r.uri)
		case !slices.Contains(methods, r.method):
			return fmt.Errorf("%s %s could be read as %s of %q", r.method, r.uri, r.method, name)
		}
	}
	return nil
}

// misleading are request targets. ROOT is /apis/GROUP/VERSION, THINGS the collection in
// which the user may get, list, create, update, patch and delete.
var misleading = []struct {
	name, method, target string
	codes                []int
}{
	{"control: an object", "GET", "THINGS/x", passed},
	{"control: the list", "GET", "THINGS", passed},
	{"control: a new object", "POST", "THINGS", passed},
	{"control: deleted", "DELETE", "THINGS/x", passed},
	{"control: a name with what must be escaped", "GET", "THINGS/x%20y%3Fz", passed},
	{"a subresource", "PATCH", "THINGS/x/status", []int{403}},
	{"a subresource that runs something", "POST", "THINGS/x/exec", []int{403}},
	{"another namespace", "GET", "ROOT/namespaces/b/things/x", []int{403}},
	{"all namespaces", "GET", "ROOT/things", []int{403}},
	{"a watch", "GET", "THINGS?watch=1", []int{403}},
	{"a watch, said twice", "GET", "THINGS?watch=0&watch=1", []int{200, 400, 403}},
	{"a watch, the other way round", "GET", "THINGS?watch=1&watch=0", []int{200, 400, 403}},
	{"a watch behind a semicolon", "GET", "THINGS?limit=1;watch=1", []int{400}},
	{"a selector that is not read", "DELETE", "THINGS?labelSelector=a%3Db;c", []int{400}},
	{"a dry run that is not read", "POST", "THINGS?dryRun=All;x", []int{400}},
	{"a pair that is no escape", "GET", "THINGS?labelSelector=a%3Db&x=%", []int{400}},
	{"more pairs than are read", "DELETE", "THINGS?" + strings.Repeat("a&", 12_000) + "labelSelector=x", []int{400, 431}},
	{"a watch, escaped", "GET", "THINGS?%77atch=1", []int{403}},
	{"a watch, in another case", "GET", "THINGS?Watch=1", []int{200}},
	{"the old prefix of watches", "GET", "ROOT/watch/namespaces/a/things", []int{403, 404}},
	{"the old prefix of proxies", "GET", "ROOT/proxy/namespaces/a/things/x", []int{403, 404}},
	{"dots", "GET", "THINGS/../../../b/things/x", []int{400, 403, 404}},
	{"dots at the end", "GET", "THINGS/..", []int{400, 403}},
	{"escaped dots", "GET", "THINGS/%2e%2e/x", []int{400, 403}},
	{"one escaped dot of two", "GET", "THINGS/.%2e/x", []int{400, 403}},
	{"dots with parameters", "GET", "THINGS/..;/x", []int{400, 403}},
	{"dots escaped twice", "GET", "THINGS/%252e%252e", []int{200, 400}},
	{"a dot", "GET", "THINGS/./x", []int{400, 403}},
	{"an empty segment", "GET", "ROOT/namespaces/a//things/x", []int{301, 307, 400, 403, 404}},
	{"an empty segment before the name", "GET", "THINGS//x", []int{301, 307, 400, 403, 404}},
	{"an empty segment at the beginning", "GET", "/ROOT/namespaces/b/things/x", []int{301, 307, 400, 403, 404}},
	{"a dot at the beginning", "GET", "/.ROOT/namespaces/b/things/x", []int{301, 307, 400, 403, 404}},
	{"dots at the beginning", "GET", "/apis/..ROOT/namespaces/b/things/x", []int{301, 307, 400, 403, 404}},
	{"a slash at the end", "GET", "THINGS/x/", passed},
	{"parameters of the name", "GET", "THINGS/x;jsessionid=1", passed},
	{"parameters of the resource", "GET", "ROOT/namespaces/a/things;x=1/y", []int{403, 404}},
	{"upper case of the resource", "GET", "ROOT/namespaces/a/THINGS/x", []int{403, 404}},
	{"upper case of the prefix", "GET", "/APIS/GROUP/v1/namespaces/a/things/x", []int{403, 404}},
	{"a number sign, escaped", "GET", "THINGS/x%23/status", []int{403}},
	{"a question mark, escaped", "GET", "THINGS/x%3Fwatch=1", passed},
	{"a space as the name", "DELETE", "THINGS/%20", []int{200, 400}},
	{"a fragment", "GET", "THINGS/x#/status", []int{200, 400, 403}},
	{"line breaks, escaped", "GET", "THINGS/x%0d%0aX-Remote-User:%20mallory", []int{200, 400}},
	{"an absolute target", "GET", "https://localhostTHINGS/x", passed},
	{"an absolute target elsewhere", "GET", "http://mallory.example.comROOT/namespaces/b/things/x", []int{400, 403}},
	{"an absolute target with dots", "GET", "https://localhost/apis/..ROOT/namespaces/b/things", []int{301, 307, 400, 403, 404}},
	{"a star", "OPTIONS", "*", []int{200, 400, 403, 404}},
	{"an authority", "CONNECT", "127.0.0.1:1", []int{400, 403, 404, 405}},
	{"a path of CONNECT", "CONNECT", "THINGS/x", []int{400, 403, 404, 405}},
	{"OPTIONS", "OPTIONS", "THINGS/x", []int{403, 405}},
	{"TRACE", "TRACE", "THINGS/x", []int{403, 405}},
	{"a method that there is not", "PURGE", "THINGS/x", []int{403, 405}},
	{"a method in lower case", "get", "THINGS/x", []int{400, 403, 405}},
	{"deleting everything", "DELETE", "THINGS", []int{403}},
	{"no escape", "GET", "THINGS/x%zz", []int{400}},
	{"half an escape", "GET", "THINGS/x%2", []int{400}},
	{"bytes that are no UTF-8", "GET", "THINGS/%ff%fe", []int{200, 400}},
	{"an escaped group", "GET", "/apis/%47ROUP/v1/namespaces/b/things/x", []int{403, 404}},
	{"escaped letters of the resource", "GET", "ROOT/namespaces/b/%74hings/x", []int{403}},
	{"escaped letters of the namespace", "GET", "ROOT/namespaces/%62/things/x", []int{403}},
	{"escaped letters of a subresource", "PATCH", "THINGS/x/%73tatus", []int{403}},
	{"escaped letters of the prefix", "GET", "/%61pis/GROUP/v1/namespaces/b/things/x", []int{403, 404}},
}

// A server reads the path, the method and the query that were authorized, by each of the
// readings.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := register(t, "paths.example.com", http1)
	_, jane := s.jane(t, "a", things(s.group))
	for _, tc := range slices.Concat(misleading, escapedSeparators) {
		where := strings.NewReplacer("THINGS", s.root(), "ROOT", "/apis/"+s.group+"/v1", "GROUP", s.group, "%47ROUP", "%70"+s.group[1:]).Replace(tc.target)
		a := target.send(t, jane, tc.method, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{}", tc.method, where))
		if err := a.among(tc.codes...); err != nil {
			t.Errorf("%s: answered %v, want %v", tc.name, err, tc.codes)
		}
		seen := s.take(t)
		for _, r := range seen {
			if err := within(r, s.root(), []string{"GET", "PUT", "PATCH", "DELETE"}, []string{"GET", "POST"}); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		if reached := len(seen) == 1; reached != (a.code == 200) || len(seen) > 1 {
			t.Errorf("%s: answered %v, and %d requests reached the server: %v", tc.name, a, len(seen), seen)
		}
	}
}

// escapedSeparators are targets with bytes that some servers treat as separators, or as the
// end, of an unescaped path.
var escapedSeparators = []struct {
	name, method, target string
	codes                []int
}{
	{"an escaped slash before a subresource", "PATCH", "THINGS/x%2Fstatus", refused},
	{"the same in lower case", "POST", "THINGS/x%2fexec", refused},
	{"an escaped slash before the name", "DELETE", "THINGS%2Fx", []int{400, 403, 404}},
	{"escaped slashes to another namespace", "GET", "ROOT/namespaces/a%2F..%2Fb/things/x", []int{400, 403, 404}},
	{"an escaped slash within the group", "GET", "/apis/GROUP%2Fv1/namespaces/a/things/x", []int{400, 403, 404}},
	{"an escaped slash behind dots", "GET", "THINGS/..%2fx", []int{400, 403}},
	{"a backslash", "GET", `THINGS/x\..\y`, []int{400}},
	{"an escaped backslash", "GET", "THINGS/x%5Cstatus", refused},
	{"an escaped backslash in lower case", "GET", "THINGS/x%5c..%5cy", refused},
	{"a NUL, escaped", "GET", "THINGS/x%00/status", []int{400, 403}},
	{"a NUL at the end", "GET", "THINGS/x%00y", refused},
}

// The check of readings accepts and rejects examples.
func TestReadings(t *testing.T) {
	t.Parallel()
	const root = "/apis/g/v1/namespaces/a/things"
	for uri, want := range map[string]bool{
		root: true, root + "/x": true, root + "/x%20y": true, root + "/": true, root + "/x;a=b": true, root + "/x?watch=0": true,
		root + "/x/status": false, root + "/x%2Fstatus": false, root + "/x%5cstatus": false, root + "/..": false, root + "/%2e%2e": false,
		root + "/..;/x": false, root + "?watch=1": false, root + "?a=b;watch=1": false, root + "ies": false, "/apis/g/v1/namespaces/b/things": false,
		root + "%00/x": false,
	} {
		err := within(&request{method: "GET", uri: uri}, root, []string{"GET"}, []string{"GET"})
		if (err == nil) != want {
			t.Errorf("%s: %v, want it to pass: %t", uri, err, want)
		}
	}
	if within(&request{method: "DELETE", uri: root + "/"}, root, []string{"DELETE"}, []string{"GET"}) == nil {
		t.Error("a DELETE of the list passes for one of an object")
	}
}
