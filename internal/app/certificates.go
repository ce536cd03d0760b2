package app

import (
	"log/slog"

	"admitd/internal/config"
	"admitd/internal/sockets"
)

// loadCertificates reads what the gate shows and whom it believes; nil without TLS. The error is a *SetupError.
func loadCertificates(t config.TLS, logger *slog.Logger) (*sockets.Certificates, error) {
	if t.Cert == "" {
		return nil, nil
	}
	c, err := sockets.LoadCertificates(sockets.TLSFiles{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}, logger)
	if err != nil {
		return nil, &SetupError{err}
	}
	return c, nil
}

// CheckCertificates says whether serve could use the TLS files. The error is a *SetupError.
func CheckCertificates(t config.TLS) error {
	_, err := loadCertificates(t, slog.New(slog.DiscardHandler))
	return err
}
