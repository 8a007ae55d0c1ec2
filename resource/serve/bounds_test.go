package serve

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is an HTTP/2 connection to the server's socket, whose settings have
// been exchanged.
func rawHTTP2(t *testing.T, s *testServer) *http2.Framer {
	t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	framer := http2.NewFramer(conn, conn)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, framer.WriteSettings(), framer.WriteSettingsAck()); err != nil {
		t.Fatal(err)
	}
	return framer
}

// ending reads until the connection ends, and returns what the server said of
// that.
func ending(framer *http2.Framer) (code http2.ErrCode, said bool) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return code, said
		}
		if bye, ok := frame.(*http2.GoAwayFrame); ok {
			code, said = bye.ErrCode, true
		}
	}
}

// A connection's buffer does not grow beyond a frame of bounded size, whatever
// the frame is.
func TestFramesAreBounded(t *testing.T) {
	s := newTestServer(t, ok)
	run(t, s)
	const unknown = 0xfa // the protocol has such frames ignored
	framer := rawHTTP2(t, s)
	if err := framer.WriteRawFrame(unknown, 0, 0, make([]byte, maxFrame)); err != nil {
		t.Fatal(err)
	}
	if err := framer.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	for answered := false; !answered; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("after the largest frame: %v", err)
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if size, _ := settings.Value(http2.SettingMaxFrameSize); size != maxFrame {
				t.Fatalf("the server takes frames of %d bytes, want %d", size, maxFrame)
			}
		}
		if ping, ok := frame.(*http2.PingFrame); ok {
			answered = ping.IsAck()
		}
	}
	// The server may end the connection before it has read all of it.
	_ = framer.WriteRawFrame(unknown, 0, 0, make([]byte, maxFrame+1))
	if code, said := ending(framer); said && code != http2.ErrCodeFrameSize {
		t.Errorf("a frame one byte longer: %v", code)
	}
}

// A header that does not end is given up, in as many pieces as it may come.
func TestHeadersAreBounded(t *testing.T) {
	s := newTestServer(t, ok)
	run(t, s)
	framer := rawHTTP2(t, s)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true})
	for sent := 0; err == nil; sent += maxFrame / 2 {
		if sent > 8*maxSocketHeader {
			t.Fatalf("the server took %d bytes of a header", sent)
		}
		block.Reset()
		_ = encoder.WriteField(hpack.HeaderField{Name: "x-more", Value: strings.Repeat("~", maxFrame/2), Sensitive: true}) // a buffer takes all
		err = framer.WriteContinuation(1, false, block.Bytes())
	}

	path := strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)
	for more, want := range map[int]int{maxSocketHeader / 2: http.StatusOK, maxSocketHeader + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		response, _ := get(t, socketClient(t, path, false), "http://portico/x", "X-More", strings.Repeat("x", more))
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %s, want %d", more, response.Status, want)
		}
	}
}
