package sockets

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign returns a certificate for localhost with this name, and its key.
func (a *authority) sign(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shake makes a TLS connection and says whose certificate was shown. client is nil for none of our own.
func shake(t *testing.T, l net.Listener, roots *authority, client *tls.Certificate) (name string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		if c.(*tls.Conn).Handshake() == nil {
			_, _ = c.Write([]byte("x"))
		}
		_ = c.Close()
	}()
	defer func() { <-done }()
	pool := x509.NewCertPool()
	pool.AddCert(roots.cert)
	conf := &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if client != nil {
		conf.Certificates = []tls.Certificate{*client}
	}
	c, err := tls.Dial("tcp", l.Addr().String(), conf)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	// With TLS 1.3 a refused client certificate shows at the first read.
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

type tlsRig struct {
	ca    *authority
	files TLSFiles
	certs *Certificates
	l     net.Listener
	log   bytes.Buffer
}

func newTLSRig(t *testing.T, clientCA *authority) *tlsRig {
	t.Helper()
	dir := t.TempDir()
	r := &tlsRig{ca: newAuthority(t), files: TLSFiles{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}}
	r.renew(t, "first")
	if clientCA != nil {
		r.files.ClientCA = filepath.Join(dir, "ca.pem")
		put(t, r.files.ClientCA, clientCA.pem())
	}
	var err error
	if r.certs, err = LoadCertificates(r.files, slog.New(slog.NewTextHandler(&r.log, nil))); err != nil {
		t.Fatal(err)
	}
	r.l = r.certs.Over(listen(t, "127.0.0.1:0", 0))
	return r
}

func (r *tlsRig) renew(t *testing.T, name string) {
	t.Helper()
	cert, key := r.ca.sign(t, name)
	put(t, r.files.Cert, cert)
	put(t, r.files.Key, key)
}

func (r *tlsRig) wantShown(t *testing.T, want string) {
	t.Helper()
	if name, err := shake(t, r.l, r.ca, nil); name != want {
		t.Errorf("shown %q %v, want %q", name, err, want)
	}
}

func TestRenewedCertificateIsShownWithoutARestart(t *testing.T) {
	r := newTLSRig(t, nil)
	r.wantShown(t, "first")
	r.renew(t, "second")
	r.wantShown(t, "first") // nobody has looked yet
	if err := r.certs.Reload("test"); err != nil {
		t.Error(err)
	}
	r.wantShown(t, "second")
}

func TestBrokenPairKeepsTheGoodOneAndIsSaidOnce(t *testing.T) {
	r := newTLSRig(t, nil)
	_, otherKey := r.ca.sign(t, "other")
	for _, c := range []struct {
		name  string
		spoil func()
		want  string
	}{
		{"a key of another certificate", func() { put(t, r.files.Key, otherKey) }, "are no pair"},
		{"half a file", func() { put(t, r.files.Cert, []byte("-----BEGIN CERT")) }, "are no pair"},
		{"an absent file", func() { _ = os.Remove(r.files.Cert) }, "tls.cert: "},
	} {
		c.spoil()
		r.log.Reset()
		for range 3 {
			if err := r.certs.Reload("test"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		r.wantShown(t, "first")
		if n := strings.Count(r.log.String(), "the one in use stays"); n != 1 {
			t.Errorf("%s: said %d times:\n%s", c.name, n, r.log.String())
		}
		if strings.Contains(r.log.String(), "PRIVATE KEY") {
			t.Error("a key is in the log")
		}
	}
	r.renew(t, "mended")
	if err := r.certs.Reload("test"); err != nil {
		t.Error(err)
	}
	r.wantShown(t, "mended")
}

func TestStartWithABrokenPairIsRefused(t *testing.T) {
	r := newTLSRig(t, nil)
	put(t, r.files.Key, []byte("no key"))
	if _, err := LoadCertificates(r.files, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), r.files.Key) {
		t.Error(err)
	}
}

func TestClientWithoutACertificateOfTheCAIsKeptOut(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	r := newTLSRig(t, ours)
	pair := func(a *authority) *tls.Certificate {
		cert, key := a.sign(t, "caller")
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	if name, err := shake(t, r.l, r.ca, pair(ours)); name != "first" {
		t.Errorf("with our certificate: %v", err)
	}
	if _, err := shake(t, r.l, r.ca, nil); err == nil {
		t.Error("without a certificate: let in")
	}
	if _, err := shake(t, r.l, r.ca, pair(foreign)); err == nil {
		t.Error("with a foreign certificate: let in")
	}
	put(t, r.files.ClientCA, []byte("nothing"))
	if err := r.certs.Reload("test"); err == nil || !strings.Contains(err.Error(), "holds no certificate") {
		t.Errorf("an empty CA file: %v", err)
	}
	if _, err := shake(t, r.l, r.ca, nil); err == nil {
		t.Error("a broken CA file opened the door")
	}
}
