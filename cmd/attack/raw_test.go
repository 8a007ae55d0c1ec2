package attack

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	xhttp2 "golang.org/x/net/http2"

	"portico/internal/testing/await"
)

// answer is the response of the gateway to a raw request.
type answer struct {
	// code is the status; 0 if the stream or connection ended without a response.
	code   int
	header nethttp.Header
	body   []byte
	// more is the number of further responses on an HTTP/1.1 connection.
	more int
	// ended is the error without a response.
	ended string
}

func (a answer) String() string { return fmt.Sprintf("%d %s %.300s", a.code, a.ended, a.body) }

// dial opens a connection to the gateway, with a certificate or without one.
func (i *installation) dial(t *testing.T, certificate *tls.Certificate, protocol string) net.Conn {
	t.Helper()
	config := i.tls(certificate)
	config.NextProtos = []string{protocol}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: await.Patience()}, "tcp", i.host, config)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
		t.Fatalf("the gateway speaks %q, want %q", got, protocol)
	}
	return conn
}

// send sends bytes over a new HTTP/1.1 connection and reads responses until the connection
// ends, or for 100 ms after a response.
func (i *installation) send(t *testing.T, certificate *tls.Certificate, method, text string) answer {
	t.Helper()
	conn := i.dial(t, certificate, http1)
	defer conn.Close()
	// The gateway may respond before it has read everything.
	_, _ = io.WriteString(conn, text)
	conn.SetReadDeadline(time.Now().Add(await.Patience()))
	reader := bufio.NewReader(conn)
	var first answer
	for n := 0; ; n++ {
		res, err := nethttp.ReadResponse(reader, &nethttp.Request{Method: method})
		if err != nil {
			if n == 0 {
				first.ended = err.Error()
			}
			return first
		}
		body, _ := io.ReadAll(res.Body)
		switch {
		case n == 0 && res.StatusCode == nethttp.StatusContinue:
			n--
			continue
		case n == 0:
			first = answer{code: res.StatusCode, header: res.Header, body: body}
		default:
			first.more++
		}
		if res.Close || res.StatusCode == nethttp.StatusSwitchingProtocols {
			// Read what follows, too.
			conn.SetReadDeadline(time.Now().Add(time.Second))
			continue
		}
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
}

// field is a field of a header block.
type field struct{ name, value string }

// stream is a request over HTTP/2.
type stream struct {
	header  []field
	body    []byte
	trailer []field
}

// sendStream sends a stream over a new connection without checking it, and reads until the
// stream has ended.
func (i *installation) sendStream(t *testing.T, certificate *tls.Certificate, s stream) answer {
	t.Helper()
	conn := i.dial(t, certificate, http2)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(await.Patience()))
	io.WriteString(conn, xhttp2.ClientPreface)
	framer := xhttp2.NewFramer(conn, conn)
	framer.AllowIllegalWrites = true
	framer.WriteSettings()
	framer.WriteHeaders(xhttp2.HeadersFrameParam{
		StreamID: 1, BlockFragment: literals(s.header), EndHeaders: true, EndStream: s.body == nil && s.trailer == nil,
	})
	if s.body != nil {
		framer.WriteData(1, s.trailer == nil, s.body)
	}
	if s.trailer != nil {
		framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: literals(s.trailer), EndHeaders: true, EndStream: true})
	}
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return readStream(framer)
}

// literals encodes fields without the dynamic table: each block stands alone.
func literals(fields []field) []byte {
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, f := range fields {
		encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: true})
	}
	return out.Bytes()
}

// frame encodes a frame of HTTP/2.
func frame(kind xhttp2.FrameType, flags xhttp2.Flags, id uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), byte(flags)}
	return append(binary.BigEndian.AppendUint32(out, id), payload...)
}

// readStream reads the response of stream 1.
func readStream(framer *xhttp2.Framer) answer {
	var a answer
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			a.ended += err.Error()
			return a
		}
		ended := false
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *xhttp2.PingFrame:
			if !f.IsAck() {
				framer.WritePing(true, f.Data)
			}
		case *xhttp2.MetaHeadersFrame:
			if f.StreamID == 1 {
				if code, err := strconv.Atoi(f.PseudoValue("status")); err == nil && code >= 200 {
					a.code = code
				}
				ended = f.StreamEnded()
			}
		case *xhttp2.DataFrame:
			if f.StreamID == 1 {
				a.body = append(a.body, f.Data()...)
				ended = f.StreamEnded()
			}
		case *xhttp2.RSTStreamFrame:
			if f.StreamID == 1 {
				a.ended = "RST_STREAM " + f.ErrCode.String()
				ended = true
			}
		case *xhttp2.GoAwayFrame:
			a.ended = "GOAWAY " + f.ErrCode.String() + " "
		}
		if ended {
			return a
		}
	}
}

// among returns an error unless the status is one of codes.
func (a answer) among(codes ...int) error {
	if slices.Contains(codes, a.code) {
		return nil
	}
	return errors.New(a.String())
}
