package config

import (
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkListener checks TLS, CORS, socket modes and the bounds of an upgrade.
func (c Config) checkListener(k *checker) {
	for path, v := range map[string]string{"listen_mode": c.ListenMode, "admin.listen_mode": c.Admin.ListenMode} {
		if _, ok := fileMode(v); !ok {
			k.add(path, "%q is not a mode in octal such as \"0660\"", v)
		}
	}
	switch t := c.TLS; {
	case t.Cert != "" && t.Key == "":
		k.add("tls.key", "tls.cert needs its key: name the file (--tls-key)")
	case t.Cert == "" && t.Key != "":
		k.add("tls.cert", "tls.key needs its certificate: name the file (--tls-cert)")
	case t.ClientCA != "" && t.Cert == "":
		k.add("tls.client_ca", "client certificates need TLS: set tls.cert and tls.key")
	}
	for i, o := range c.CORS.Origins {
		at := "cors.origins." + strconv.Itoa(i)
		u, err := url.Parse(o)
		switch {
		case slices.Index(c.CORS.Origins, o) < i:
			k.add(at, "%q stands in the list twice", o)
		case o == "*":
		case err != nil || u.Scheme == "" || u.Host == "" || o != strings.ToLower(u.Scheme+"://"+u.Host):
			k.add(at, "%q is not an origin such as https://chat.example (scheme, host in lower case, port unless it is the usual one, nothing after), nor *", o)
		}
	}
	k.atLeast("upgrade.timeout", c.Upgrade.Timeout, time.Second)
	k.atLeast("upgrade.drain_timeout", c.Upgrade.DrainTimeout, 0)
}

// Mode is a checked socket mode.
func Mode(octal string) fs.FileMode {
	m, _ := fileMode(octal)
	return m
}

func fileMode(octal string) (fs.FileMode, bool) {
	n, err := strconv.ParseUint(octal, 8, 32)
	return fs.FileMode(n), err == nil && n <= 0o777
}
