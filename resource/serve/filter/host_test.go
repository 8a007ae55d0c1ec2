package filter

import "testing"

// A host that is no name or address, with or without a port, is a 400.
func TestHosts(t *testing.T) {
	t.Parallel()
	for host, valid := range map[string]bool{
		"": true, "localhost": true, "a-b_c.example.com.": true, "example.com:6443": true, "example.com:": true, "10.0.0.1:6443": true, "[::1]": true, "[fd00::1]:6443": true,
		"localhost/api/v1/secrets?": false, "a@b": false, "a b": false, "a,b": false, "a;b": false, "a#b": false, "a?b": false, "a\\b": false, "a%2fb": false, "a:b": false, "a:1:2": false,
		"localhost:123456": false, ":6443": false, "[::1": false, "::1": false, "[::1]x": false, "[::1]:x": false, "[10.0.0.1]": false, "[fe80::1%/x]": false, "b\u00fccher.example": false,
	} {
		if got := host == "" || isAuthority(host); got != valid {
			t.Errorf("%q: %v, want %v", host, got, valid)
		}
	}
}
