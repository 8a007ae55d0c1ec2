package resource

import (
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxQueryPairs is the number of pairs of a query that net/url parses. Of a longer query
// [url.URL.Query] returns nothing.
const maxQueryPairs = 10_000

// shownPair bounds how much of a pair is in a message, in bytes.
const shownPair = 100

// CheckQuery returns a 400 for a query that net/url cannot parse, with the first pair at fault; nil
// for any other. [url.URL.Query] leaves such pairs out: a request would be carried out without a
// selector or dryRun that its client has sent. It is called before anything reads a query.
func CheckQuery(u *url.URL) error {
	query := u.RawQuery
	if strings.IndexByte(query, ';') < 0 && strings.IndexByte(query, '%') < 0 && len(query) < maxQueryPairs {
		return nil
	}
	if n := strings.Count(query, "&") + 1; n > maxQueryPairs {
		return badQuery(fmt.Sprintf("it has %d pairs; send %d or fewer", n, maxQueryPairs))
	}
	for pair := range strings.SplitSeq(query, "&") {
		if _, err := url.ParseQuery(pair); err != nil {
			if len(pair) > shownPair {
				pair = pair[:shownPair] + "..."
			}
			return badQuery(fmt.Sprintf("%q: %v; write %%3B for a semicolon and %%25 for a percent sign", pair, err))
		}
	}
	return nil
}

func badQuery(text string) error {
	return apierrors.NewBadRequest("the query of the request cannot be parsed: " + text)
}
