package handlers

import (
	"bytes"
)

// Watches that replace a list are compressed for clients that accept gzip (docs/wire.md
// 3.3), as a sequence of gzip members. Each is complete, so that no state is kept between
// them (a compressor is larger than everything else of a watch), and the member of an
// event is the same for all watchers. Decoders read the sequence as one stream.

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
