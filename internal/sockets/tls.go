package sockets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"admitd/internal/strict"
)

// TLSFiles name the PEM files of a listener: a certificate chain, its key, and, when clients need certificates, the CAs that
// may have signed those.
type TLSFiles struct{ Cert, Key, ClientCA string }

// lookEvery is how often the files are read and compared: what renews certificates replaces files in many ways.
const lookEvery = 2 * time.Second

// readWithin bounds the reading of one file.
const readWithin = 5 * time.Second

// Certificates are what a TLS listener shows, reloadable while it serves. They are safe for concurrent use.
type Certificates struct {
	files  TLSFiles
	logger *slog.Logger
	now    atomic.Pointer[tls.Config]

	mu sync.Mutex // orders reloads
	// seen is the content of the last attempt, good or bad, so that a bad one is told once.
	seen [sha256.Size]byte
	bad  error
}

// LoadCertificates reads the files for the first time. Errors name the file and what is wrong with it; they hold nothing of a key.
func LoadCertificates(files TLSFiles, logger *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: files, logger: logger}
	if err := c.Reload("start"); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files again. When they cannot be used, what was good stays and the error says why. Unchanged files give
// the outcome of the last time.
func (c *Certificates) Reload(source string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts, err := c.read()
	if err != nil {
		return c.refuse(source, err, c.seen)
	}
	sum := sha256.Sum256(bytes.Join(texts, []byte{0}))
	if c.now.Load() != nil && sum == c.seen {
		return c.bad
	}
	conf, leaf, err := c.parse(texts)
	if err != nil {
		return c.refuse(source, err, sum)
	}
	c.seen, c.bad = sum, nil
	first := c.now.Swap(conf) == nil
	if !first {
		c.logger.Info("certificate reloaded", "source", source, "subject", leaf.Subject.String(), "names", leaf.DNSNames, "not_after", leaf.NotAfter)
	}
	if time.Now().After(leaf.NotAfter) {
		c.logger.Warn("the certificate has expired; callers will refuse it", "file", c.files.Cert, "not_after", leaf.NotAfter)
	}
	return nil
}

// refuse keeps what was good and says why, once for each content.
func (c *Certificates) refuse(source string, err error, sum [sha256.Size]byte) error {
	if c.now.Load() != nil && (c.bad == nil || c.bad.Error() != err.Error() || sum != c.seen) {
		c.logger.Error("certificate not reloaded; the one in use stays", "source", source, "error", err)
	}
	c.seen, c.bad = sum, err
	return err
}

func (c *Certificates) read() ([][]byte, error) {
	var out [][]byte
	for _, f := range []struct{ key, name string }{{"tls.cert", c.files.Cert}, {"tls.key", c.files.Key}, {"tls.client_ca", c.files.ClientCA}} {
		if f.name == "" {
			out = append(out, nil)
			continue
		}
		b, err := strict.Read(f.name, readWithin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		out = append(out, b)
	}
	return out, nil
}

func (c *Certificates) parse(texts [][]byte) (*tls.Config, *x509.Certificate, error) {
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, nil, fmt.Errorf("tls.cert %s and tls.key %s are no pair: %w", c.files.Cert, c.files.Key, err)
	}
	conf := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		// The gate speaks HTTP/1.1 alone: one request's flow must not depend on another's.
		NextProtos: []string{"http/1.1"},
	}
	if c.files.ClientCA != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(texts[2]) {
			return nil, nil, fmt.Errorf("tls.client_ca %s holds no certificate in PEM form", c.files.ClientCA)
		}
		conf.ClientCAs, conf.ClientAuth = pool, tls.RequireAndVerifyClientCert
		// A resumed session would not ask again after the CAs have changed.
		conf.SessionTicketsDisabled = true
	}
	return conf, pair.Leaf, nil
}

// Over puts TLS on a listener. Connections see the certificate that is good when they are made.
func (c *Certificates) Over(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.now.Load(), nil
		},
	})
}

// Run looks at the files every two seconds until ctx ends. It returns nil.
func (c *Certificates) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// The log has what went wrong.
			_ = c.Reload("file")
		}
	}
}
