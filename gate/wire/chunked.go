package wire

import "errors"

// Bounds of what a chunked body may carry besides its bytes.
const (
	// maxChunkExtra is how many bytes of chunk extensions a body may have more than data.
	maxChunkExtra = 16 << 10
	// maxTrailer is how many bytes of trailer fields a body may have.
	maxTrailer = 8 << 10
)

var (
	errChunk        = errors.New("malformed chunked body")
	errChunkExtra   = errors.New("chunked body with too much between its chunks")
	errChunkTrailer = errors.New("trailers too long")
)

// States of a chunkDecoder, named after what must come next.
const (
	chunkSize = iota
	chunkDigits
	chunkExtension
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerLine
	trailerLF
	trailerEndLF
	chunkDone
)

// chunkDecoder undoes the chunked transfer coding (RFC 9112 section 7.1), in whatever pieces it comes. It accepts no
// bare LF, no space around sizes and no size above 2^62. Trailers are read and dropped.
type chunkDecoder struct {
	state   int
	size    int64
	extra   int64
	trailer int
}

// done reports whether the last chunk and the trailers have been read.
func (d *chunkDecoder) done() bool { return d.state == chunkDone }

// decode reads from src what fits into dst. It reads on past a full dst only where no data follows, so that the end
// is seen together with the last byte. A malformed body stays so.
func (d *chunkDecoder) decode(dst, src []byte) (nd, ns int, err error) {
	for ns < len(src) && d.state != chunkDone {
		if d.state == chunkData {
			n := copy(dst[nd:], src[ns:min(int64(len(src)), int64(ns)+d.size)])
			if n == 0 {
				return nd, ns, nil
			}
			nd, ns, d.size = nd+n, ns+n, d.size-int64(n)
			if d.size == 0 {
				d.state = chunkDataCR
			}
			continue
		}
		if err := d.step(src[ns]); err != nil {
			return nd, ns, err
		}
		ns++
	}
	return nd, ns, nil
}

// step reads one byte between data.
func (d *chunkDecoder) step(c byte) error {
	if d.state >= trailerStart {
		return d.trailerStep(c)
	}
	if d.extra++; d.extra > maxChunkExtra {
		return errChunkExtra
	}
	next := -1
	switch d.state {
	case chunkSize, chunkDigits:
		return d.digit(c)
	case chunkExtension:
		switch {
		case c == '\r':
			next = chunkSizeLF
		case isText(c):
			next = chunkExtension
		}
	case chunkSizeLF:
		if c == '\n' {
			if next = chunkData; d.size == 0 {
				next = trailerStart
			}
			// Plain framing is free, and data pays for extensions.
			d.extra = max(d.extra-16-min(d.size, maxChunkExtra), 0)
		}
	case chunkDataCR:
		if c == '\r' {
			next = chunkDataLF
		}
	case chunkDataLF:
		if c == '\n' {
			next, d.size = chunkSize, 0
		}
	}
	if next < 0 {
		return errChunk
	}
	d.state = next
	return nil
}

func (d *chunkDecoder) digit(c byte) error {
	v := int64(-1)
	switch {
	case '0' <= c && c <= '9':
		v = int64(c - '0')
	case 'a' <= c && c <= 'f':
		v = int64(c-'a') + 10
	case 'A' <= c && c <= 'F':
		v = int64(c-'A') + 10
	}
	switch {
	case v >= 0 && d.size < 1<<58:
		d.size, d.state = d.size<<4|v, chunkDigits
	case d.state == chunkSize:
		return errChunk
	case c == '\r':
		d.state = chunkSizeLF
	case c == ';':
		d.state = chunkExtension
	default:
		return errChunk
	}
	return nil
}

func (d *chunkDecoder) trailerStep(c byte) error {
	if d.trailer++; d.trailer > maxTrailer {
		return errChunkTrailer
	}
	switch {
	case d.state == trailerStart && c == '\r':
		d.state = trailerEndLF
	case d.state == trailerLine && c == '\r':
		d.state = trailerLF
	case d.state == trailerLF && c == '\n':
		d.state = trailerStart
	case d.state == trailerEndLF && c == '\n':
		d.state = chunkDone
	case d.state == trailerStart && isToken(c), d.state == trailerLine && isText(c):
		d.state = trailerLine
	default:
		return errChunk
	}
	return nil
}

// appendChunkSize appends the line before a chunk of n bytes.
func appendChunkSize(b []byte, n int) []byte {
	const digits = "0123456789abcdef"
	shift := 0
	for n>>(shift+4) != 0 {
		shift += 4
	}
	for ; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return append(b, '\r', '\n')
}
