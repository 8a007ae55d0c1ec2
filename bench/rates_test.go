package main

import (
	"testing"
	"time"
)

// The parsers read rate, median and 99th percentile, and reject a run in which a
// request failed.
func TestParseTools(t *testing.T) {
	t.Parallel()
	const (
		wrkOutput = "  Latency Distribution\n     50%  635.91us\n     75%  712.00us\n     90%    1.04ms\n     99%    2.50ms\n" +
			"  9000 requests in 3.00s, 34.00MB read\n"
		wrkRate      = "Requests/sec:   2999.50\nTransfer/sec:     11.33MB\n"
		h2loadFirst  = "finished in 3.00s, 2999.50 req/s, 1.09MB/s\nrequests: 4 total, 4 started, 4 done, 4 succeeded, 0 failed, 0 errored, 0 timeout\n"
		h2loadStatus = "status codes: 10 2xx, 0 3xx, 0 4xx, 0 5xx\n"
		h2loadLog    = "1795382428599133\t0\t1\n1795382428599133\t200\t2500\n1795382428599134\t200\t636\n1795382428599134\t200\t636\n"
	)
	for name, tc := range map[string]struct {
		tool        loadTool
		output, log string
		want        turnResult
		rejected    bool
	}{
		"wrk":                       {wrk, wrkOutput + wrkRate, "", turnResult{2999.5, 635910, 2500 * time.Microsecond}, false},
		"wrk, an error status":      {wrk, wrkOutput + "  Non-2xx or 3xx responses: 3\n" + wrkRate, "", turnResult{}, true},
		"wrk, a failed connection":  {wrk, wrkOutput + "  Socket errors: connect 0, read 1, write 0, timeout 0\n" + wrkRate, "", turnResult{}, true},
		"wrk, no result":            {wrk, "", "", turnResult{}, true},
		"h2load":                    {h2load, h2loadFirst + h2loadStatus, h2loadLog, turnResult{2999.5, 636 * time.Microsecond, 2500 * time.Microsecond}, false},
		"h2load, an error status":   {h2load, h2loadFirst + "status codes: 2 2xx, 0 3xx, 0 4xx, 20 5xx\n", h2loadLog, turnResult{}, true},
		"h2load, an error in a log": {h2load, h2loadFirst + h2loadStatus, "1795382428599133\t503\t2500\n", turnResult{}, true},
		"h2load, no log":            {h2load, h2loadFirst + h2loadStatus, "", turnResult{}, true},
	} {
		got, err := tc.tool.parse(tc.output, tc.log)
		if (err != nil) != tc.rejected || !tc.rejected && got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
}
