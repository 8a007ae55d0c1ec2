package rest

import (
	"bytes"
)

// Watches that take the place of a list are compressed for those who accept it
// (docs/wire.md 3.3), as a row of gzip members: each is whole, so that nothing is
// kept between two of them (a compressor is larger than everything else that a
// watch needs), and the member of one event is the same for all watchers.
// Decoders read the row as one stream.

// appendMember appends the data as one gzip member. Before its end everything
// is flushed, so that a reader need not see the beginning of the next member to
// hand on the last bytes of this one.
func (p *gzipPool) appendMember(dst, data []byte) []byte {
	to := bytes.NewBuffer(dst)
	z := p.get(to)
	defer p.put(z)
	// A buffer takes everything.
	_, _ = z.Write(data)
	_ = z.Flush()
	_ = z.Close()
	return to.Bytes()
}
