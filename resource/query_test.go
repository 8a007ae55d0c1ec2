package resource

import (
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A query of which net/url would leave out a pair is refused with that pair, and no other is.
func TestCheckQuery(t *testing.T) {
	t.Parallel()
	for query, names := range map[string]string{
		"": "", "a=1&b=2": "", "labelSelector=a%3Db%3Bc": "", "a&&b=&=c": "", "pretty": "",
		"a;b":                               `"a;b"`,
		"limit=1&labelSelector=a%3Db;c":     `"labelSelector=a%3Db;c"`,
		"dryRun=All;x":                      `"dryRun=All;x"`,
		"x=%":                               `"x=%"`,
		"a=1&b=%zz&c=3":                     `"b=%zz"`,
		"%=1":                               `"%=1"`,
		strings.Repeat("a&", 9_999):         "",
		strings.Repeat("a&", 9_999) + "a=1": "",
		strings.Repeat("a&", 12_000):        "12001 pairs",
		"a=" + strings.Repeat("%", 5000):    `"a=%%%`,
	} {
		err := CheckQuery(&url.URL{RawQuery: query})
		_, parses := url.ParseQuery(query)
		if (parses == nil) != (err == nil) {
			t.Errorf("%.60q: net/url says %v, CheckQuery %v", query, parses, err)
		}
		if names != "" && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), names) || len(err.Error()) > 400) {
			t.Errorf("%.60q: %v, want a 400 with %s", query, err, names)
		}
	}
}
