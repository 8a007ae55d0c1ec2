package backend

import "testing"

func TestSameAddress(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"https://a", "http://A.:443", true},
		{"https://a", "http://a", false},
		{"https://a:0443", "https://a", true},
		{"https://localhost:1", "http://127.0.0.1:1", true},
		{"https://[::1]:1", "https://[0:0:0:0:0:0:0:1]:1", true},
		{"https://[::1]:1", "https://me.localhost:1", true},
		{"https://0.0.0.0:1", "https://[::]:1", true},
		{"https://[::ffff:10.0.0.1]:1", "https://10.0.0.1:1", true},
		{"https://127.0.0.2:1", "https://127.0.0.1:1", false},
		{"https://localhost:1", "https://localhost:2", false},
		{"https://localhost.example.com:1", "https://localhost:1", false},
		{"unix:///a", "unix:///a", true},
		{"unix:///a", "unix:///A", false},
		{"unix:///a", "https://a", false},
		{"nonsense", "nonsense", false},
	} {
		if got := SameAddress(tc.a, tc.b); got != tc.same || SameAddress(tc.b, tc.a) != tc.same {
			t.Errorf("%s and %s: %v", tc.a, tc.b, got)
		}
	}
}
