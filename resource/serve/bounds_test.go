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

// newFramer begins HTTP/2 on a connection.
func newFramer(t *testing.T, conn net.Conn) *http2.Framer {
	t.Helper()
	framer := http2.NewFramer(conn, conn)
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, framer.WriteSettings(), framer.WriteSettingsAck()); err != nil {
		t.Fatal(err)
	}
	return framer
}

// fields encodes alternating names and values of header fields.
func fields(namesAndValues ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(namesAndValues); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1], Sensitive: true}) // a buffer takes all
	}
	return block.Bytes()
}

// The server accepts no frame longer than maxFrame, of any type, which bounds the buffer of a
// connection.
func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, ok)
	s.start(t)
	const unknown = 0xfa // the protocol has such frames ignored
	framer := newFramer(t, s.dial(t))
	if err := errors.Join(framer.WriteRawFrame(unknown, 0, 0, make([]byte, maxFrame)), framer.WritePing(false, [8]byte{1})); err != nil {
		t.Fatal(err)
	}
	for answered := false; !answered; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("after the largest frame: %v", err)
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if size, _ := settings.Value(http2.SettingMaxFrameSize); size != maxFrame {
				t.Fatalf("the server accepts frames of %d bytes, want %d", size, maxFrame)
			}
		}
		if ping, ok := frame.(*http2.PingFrame); ok {
			answered = ping.IsAck()
		}
	}
	// The server may end the connection before it has read all of it.
	_ = framer.WriteRawFrame(unknown, 0, 0, make([]byte, maxFrame+1))
	if end := untilGoAway(framer); end != nil && end.ErrCode != http2.ErrCodeFrameSize {
		t.Errorf("a frame one byte longer: %v", end.ErrCode)
	}
}

// untilGoAway reads until the server ends the connection; nil if it does so without a GOAWAY.
func untilGoAway(framer *http2.Framer) *http2.GoAwayFrame {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return nil
		}
		if end, ok := frame.(*http2.GoAwayFrame); ok {
			return end
		}
	}
}

// A header that is too long is rejected, in however many frames it is sent.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, ok)
	s.start(t)
	conn := s.dial(t)
	framer := newFramer(t, conn)
	sent := make(chan int)
	go func() {
		n, more := 0, fields("x-more", strings.Repeat("~", maxFrame/2))
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/"), EndStream: true})
		for ; err == nil && n <= 8*maxSocketHeader; n += maxFrame / 2 {
			err = framer.WriteContinuation(1, false, more)
		}
		conn.Close()
		sent <- n
	}()
	untilGoAway(framer)
	conn.Close()
	if n := <-sent; n > 8*maxSocketHeader {
		t.Errorf("the server accepted %d bytes of a header", n)
	}
	for size, want := range map[int]int{maxSocketHeader / 2: http.StatusOK, maxSocketHeader + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		response, _ := get(t, s.client(t, false), "http://portico/x", "X-More", strings.Repeat("x", size))
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: got %s, want %d", size, response.Status, want)
		}
	}
}
