package supervisor

import (
	"slices"
	"strings"
)

// secretFlags are engine arguments whose values are secrets.
func secretFlags() []string {
	return []string{"--api-key", "--admin-api-key", "--hf-token", "--ssl-keyfile-password"}
}

// flagName returns the flag of an argument without its value, with underscores as dashes, as the engines' own parsers
// read it; "" for something that is no flag.
func flagName(arg string) string {
	if !strings.HasPrefix(arg, "--") {
		return ""
	}
	name, _, _ := strings.Cut(arg, "=")
	return strings.ReplaceAll(name, "_", "-")
}

// isFlag reports whether an argument begins a flag, short ones included; a negative number does not.
func isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	return arg[1] != '.' && (arg[1] < '0' || arg[1] > '9')
}

// flagValues returns the values of the last use of a flag in args, and whether it is there at all.
func flagValues(args []string, flag string) (values []string, found bool) {
	for i, a := range args {
		if flagName(a) != flag {
			continue
		}
		found, values = true, nil
		if _, v, ok := strings.Cut(a, "="); ok {
			values = []string{v}
			continue
		}
		for _, v := range args[i+1:] {
			if isFlag(v) {
				break
			}
			values = append(values, v)
		}
	}
	return values, found
}

// flagValue returns the first value of a flag, "" when there is none.
func flagValue(args []string, flag string) string {
	if v, _ := flagValues(args, flag); len(v) > 0 {
		return v[0]
	}
	return ""
}

// sets reports whether args decide about a flag, also by switching it off.
func sets(args []string, flag string) bool {
	off := "--no-" + strings.TrimPrefix(flag, "--")
	return slices.ContainsFunc(args, func(a string) bool {
		n := flagName(a)
		return n == flag || n == off
	})
}

// merge puts our arguments before the operator's and leaves out those that the operator decides about. Each of ours is a
// flag with its values.
func merge(ours [][]string, theirs []string) []string {
	var out []string
	for _, group := range ours {
		if !sets(theirs, group[0]) {
			out = append(out, group...)
		}
	}
	return append(out, theirs...)
}

// hide returns args with the values of secret flags blanked, and those values.
func hide(args []string) (shown, secrets []string) {
	hidden := secretFlags()
	secret := false
	for _, a := range args {
		switch {
		case isFlag(a):
			secret = slices.Contains(hidden, flagName(a))
			if name, v, ok := strings.Cut(a, "="); ok && secret {
				secrets = append(secrets, v)
				a, secret = name+"="+blank, false
			}
		case secret:
			secrets = append(secrets, a)
			a = blank
		}
		shown = append(shown, a)
	}
	return shown, secrets
}

// secretValues returns the values of environment entries whose names say that they are secret. Short ones are left out:
// blanking a common word in every line would hide the log, not the secret.
func secretValues(env []string) []string {
	var out []string
	for _, e := range env {
		name, v, _ := strings.Cut(e, "=")
		name = strings.ToUpper(name)
		for _, word := range []string{"TOKEN", "API_KEY", "SECRET", "PASSWORD"} {
			if strings.Contains(name, word) && len(v) >= 8 {
				out = append(out, v)
				break
			}
		}
	}
	return out
}

// environ returns the engine's environment: ours without what belongs to admitd or would lead the engine's metrics into a
// folder of an earlier run, then add, the later entry of a name winning.
func environ(inherited []string, add ...string) []string {
	at := map[string]int{}
	var out []string
	put := func(e string) {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			out[i] = e
			return
		}
		at[name] = len(out)
		out = append(out, e)
	}
	for _, e := range inherited {
		if strings.HasPrefix(e, "ADMITD_") || strings.HasPrefix(e, "PROMETHEUS_MULTIPROC_DIR=") ||
			strings.HasPrefix(e, "prometheus_multiproc_dir=") || strings.HasPrefix(e, "NOTIFY_SOCKET=") {
			continue
		}
		put(e)
	}
	for _, e := range add {
		put(e)
	}
	return out
}

// lookEnv returns the value of a name in env, "" when it is not there.
func lookEnv(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if n, v, _ := strings.Cut(e, "="); n == name {
			return v
		}
	}
	return ""
}
