package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"portico/resource"
)

// A body that overrides its method, or may hide one that does, does not reach a REST
// server as a whole; others arrive as they were sent.
func TestRESTBodyOverrides(t *testing.T) {
	t.Parallel()
	var arrived string
	front := restFront(t, "", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			arrived = "whole: " + string(body)
		}
	})
	const jsonType, form = "application/json", "application/x-www-form-urlencoded"
	padded := `{"a":"` + strings.Repeat("x", 100<<10) + `","_method":"DELETE"}`
	for _, c := range []struct {
		media, encoding, body string
		code                  int
	}{
		{form, "", "_method=DELETE", 415},
		{form, "", "a=1", 415},
		{"Application/X-WWW-Form-Urlencoded ; charset=utf-8", "", "a=1", 415},
		{"text/plain, " + form, "", "_method=DELETE", 415},
		{"multipart/form-data; boundary=x", "", "--x\r\nContent-Disposition: form-data; name=_method\r\n\r\nDELETE\r\n--x--\r\n", 415},
		{"multipart/mixed", "", "", 200}, // there is no body
		{jsonType, "gzip", "\x1f\x8b", 415},
		{jsonType + "; charset=utf-16", "", "{", 415},
		{jsonType + "; charset=utf-16; x=utf-8", "", "{", 415},
		{jsonType + "; charset*=utf-8''utf-16", "", "{", 415},
		{jsonType + "; charset=\"UTF-8\"", "identity", `{"a":1}`, 200},
		{"text/plain; charset=iso-8859-1", "", "\xe9", 200},
		{jsonType, "", `{"_method":"DELETE"}`, 400},
		{"", "", `{"_method":"DELETE"}`, 400},
		{"text/plain", "", "\xef\xbb\xbf \r\n\t{ \"a\" : [{}, \"x\"], \"_METHOD\" : 1", 400},
		{jsonType, "", `{"\u005f\u006d\u0065\u0074\u0068\u006f\u0064":"DELETE"}`, 400},
		{jsonType, "", `{"a":{"b":"\"}"},"\_method":"DELETE"}`, 400},
		{jsonType, "", padded, 400},
		{jsonType, "", `{"a":{"_method":"DELETE"},"b":"_method","_methods":1,"c":["_method",{"_method":1}]}`, 200},
		{jsonType, "", `["_method",{"_method":1}]`, 200},
		{jsonType, "", `"_method"`, 200},
		{"text/plain", "", `hello {"_method":1}`, 200},
		{"application/octet-stream", "", strings.Repeat("\x00\xff{", 50_000), 200},
	} {
		for _, chunked := range []bool{false, true} {
			if chunked && c.body == "" {
				continue
			}
			arrived = ""
			var body io.Reader = strings.NewReader(c.body)
			if chunked {
				body = iotest.HalfReader(body) // of unknown length
			}
			header := []string{"Content-Type", c.media}
			if c.encoding != "" {
				header = append(header, "Content-Encoding", c.encoding)
			}
			res, text := sendREST(t, front, "POST", shopRoot+"/pets", body, header...)
			if res.StatusCode != c.code || c.code == 200 && arrived != "whole: "+c.body || c.code != 200 && arrived != "" {
				t.Errorf("%q %q %.60q, chunked %v: %d %.200s, and it arrived: %.60q", c.media, c.encoding, c.body, chunked, res.StatusCode, text, arrived)
			}
		}
	}
}

// With allowAnyBody every body is forwarded.
func TestRESTAllowsAnyBody(t *testing.T) {
	t.Parallel()
	p := &REST{root: shopRoot, anyBody: true}
	for _, media := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json"} {
		r := httptest.NewRequest("POST", shopRoot+"/pets", strings.NewReader(`{"_method":"DELETE"}`))
		r.Header.Set("Content-Type", media)
		if err := (&Route{REST: p}).refuse(r, resource.ParseAction(r)); err != nil {
			t.Errorf("%s: %v", media, err)
		}
		if body, err := io.ReadAll(r.Body); err != nil || len(body) == 0 {
			t.Errorf("%s: %q %v", media, body, err)
		}
	}
}

// FuzzOverrideReader compares the search with a JSON decoder.
func FuzzOverrideReader(f *testing.F) {
	for _, seed := range []string{`{"_method":1}`, `{"a":{"_method":1}}`, `{"a":[1,{"b":"}"}],"\u005fmethod":"x"}`, `[]`, `"x"`, `{"a":"\\","_method":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			return
		}
		has := false
		for name := range object {
			has = has || strings.EqualFold(name, "_method")
		}
		got, err := io.ReadAll(&overrideReader{ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))})
		if (err != nil) != has || err == nil && string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	})
}
