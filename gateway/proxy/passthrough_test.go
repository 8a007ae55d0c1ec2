package proxy

import (
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

// A list of 200 MB is forwarded in pieces, without memory of its own, whether or not
// its length is known.
func TestProxyPassesLargeListsThrough(t *testing.T) {
	const piece, pieces = 128 << 10, 1600
	for _, sized := range []bool{true, false} {
		f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
			if sized {
				w.Header().Set("Content-Length", strconv.Itoa(piece*pieces))
			}
			data := make([]byte, piece)
			for range pieces {
				if _, err := w.Write(data); err != nil {
					return
				}
			}
		})
		old := debug.SetGCPercent(20)
		before := liveHeap()
		res := f.do(t, "GET", "/apis/g.example.com/v1/things", nil, nil)
		read, peak, buf := 0, uint64(0), make([]byte, piece)
		for next := 0; ; {
			n, err := res.Body.Read(buf)
			if read += n; read >= next {
				next = read + 20<<20
				peak = max(peak, liveHeap())
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("after %d bytes: %v", read, err)
			}
		}
		debug.SetGCPercent(old)
		if read != piece*pieces || peak > before+8<<20 {
			t.Errorf("sized %v: %d bytes, the heap grew from %d to %d", sized, read, before, peak)
		}
	}
}

// liveHeap is the size of the heap without garbage, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
