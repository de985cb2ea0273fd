// Package files finds a model's tokenizer and template files: in a directory that
// was named, in the path that the engine itself serves, in Hugging Face's cache on
// this machine, or on a server that speaks the hub's HTTP. It never fetches weights.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kvasir/setting"
)

// Config says where to look. The zero value looks at the engine's path and at the
// cache of HF_HOME.
type Config struct {
	// Dirs names a directory for a model, by served model name.
	Dirs map[string]string `yaml:"dirs" example:"{my-model: /models/my-model}"`
	// Repos names a hub repository for a model, by served model name, where it isn't the
	// engine's own.
	Repos map[string]string `yaml:"repos" example:"{my-model: Qwen/Qwen3-8B}"`
	// Hub allows to fetch from a hub. A router shouldn't talk to the internet unasked.
	Hub bool `yaml:"hub"`
	// Endpoint of the hub. Without it HF_ENDPOINT, else https://huggingface.co.
	Endpoint string `yaml:"endpoint" want:"http://HOST or https://HOST" example:"https://huggingface.co"`
	// TokenFile holds an access token. Without it HF_TOKEN_PATH, else HF_HOME/token; the
	// variable HF_TOKEN wins over all.
	TokenFile string `yaml:"token_file" example:"/run/secrets/hf-token"`
	// Cache is where fetched files are kept, in the hub's own layout, shared with every
	// other tool. Without it HF_HUB_CACHE, else HF_HOME/hub.
	Cache string `yaml:"cache" example:"/var/cache/huggingface"`
}

// Check accepts what the tags can't say. The error doesn't show a password.
func (c *Config) Check() error {
	if c.Endpoint == "" || cleanEndpoint(c.Endpoint) {
		return nil
	}
	return &setting.Error{Key: "endpoint", Value: strconv.Quote(c.Endpoint[strings.LastIndex(c.Endpoint, "@")+1:]), Want: "http://HOST or https://HOST, without a password (token_file is for that)"}
}

func cleanEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// Resolved returns c with what the environment says filled in.
func (c Config) Resolved() Config {
	if e := c.endpoint(); cleanEndpoint(e) { // one with a password is nobody's business
		c.Endpoint = e
	}
	c.TokenFile, c.Cache = c.tokenFile(), c.cache()
	return c
}

func (c Config) endpoint() string {
	return cmp.Or(c.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co")
}

func (c Config) tokenFile() string {
	return cmp.Or(c.TokenFile, os.Getenv("HF_TOKEN_PATH"), filepath.Join(home(), "token"))
}

// A Place is where a model's files are.
type Place struct {
	Dir   string
	How   string   // for people: how it was found
	Files []string // names in the repository, weights included, as far as known; nil: list Dir
}

// Wanted are the files that tokens and prompts depend on. Not every model has all.
var Wanted = []string{
	"config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
	"chat_template.jinja", "chat_template.json", "processor_config.json", "preprocessor_config.json", "tekken.json",
}

// Find returns where the files of the model are that an engine serves as name.
// root is the engine's own path or repository (the "root" of /v1/models). The
// error says every place that was tried and why it didn't do.
func Find(ctx context.Context, c Config, name, root string) (Place, error) {
	if dir, ok := c.Dirs[name]; ok {
		if err := usable(dir); err != nil {
			return Place{}, fmt.Errorf("model %q: configured directory: %w", name, err)
		}
		return Place{Dir: dir, How: "configured directory"}, nil
	}
	var tried []error
	if filepath.IsAbs(root) {
		err := usable(root)
		if err == nil {
			return Place{Dir: root, How: "the engine's own directory"}, nil
		}
		tried = append(tried, fmt.Errorf("the engine's path: %w", err))
	}
	repo := c.repo(name, root)
	if repo == "" {
		tried = append(tried, fmt.Errorf("%q and %q are no repository names", name, root))
	} else {
		p, err := c.cached(repo)
		if err == nil {
			return p, nil
		}
		tried = append(tried, err)
		switch {
		case offline():
			tried = append(tried, errors.New("hub: HF_HUB_OFFLINE is set"))
		case !c.Hub:
			tried = append(tried, errors.New("hub: not asked (tokens.files.hub is off)"))
		default:
			if p, err = c.fetch(ctx, repo); err == nil {
				return p, nil
			}
			tried = append(tried, err)
		}
	}
	return Place{}, fmt.Errorf("model %q: no tokenizer files: %w", name, errors.Join(tried...))
}

// repoName is what the hub allows: owner/name, or a bare name of old.
var repoName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$`)

func (c Config) repo(name, root string) string {
	for _, r := range []string{c.Repos[name], root, name} {
		if repoName.MatchString(r) && !strings.Contains(r, "..") && strings.Contains(r, "/") {
			return r
		}
	}
	return ""
}

// usable reports whether a directory has tokenizer files.
func usable(dir string) error {
	for _, n := range []string{"tokenizer.json", "tekken.json"} {
		if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s: neither tokenizer.json nor tekken.json", dir)
}

func offline() bool {
	for _, v := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToLower(os.Getenv(v)) {
		case "1", "on", "yes", "true":
			return true
		}
	}
	return false
}

// home is HF_HOME, else its default.
func home() string {
	if d := os.Getenv("HF_HOME"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "huggingface")
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(h, ".cache", "huggingface")
}

func (c Config) cache() string {
	if c.Cache != "" {
		return c.Cache
	}
	if d := os.Getenv("HF_HUB_CACHE"); d != "" {
		return d
	}
	return filepath.Join(home(), "hub")
}

// folder is the repository's place in the cache: models--owner--name.
func (c Config) folder(repo string) string {
	return filepath.Join(c.cache(), "models--"+strings.ReplaceAll(repo, "/", "--"))
}

// cached looks for the revision that refs/main names.
func (c Config) cached(repo string) (Place, error) {
	dir := c.folder(repo)
	ref, err := os.ReadFile(filepath.Join(dir, "refs", "main"))
	if err != nil {
		return Place{}, fmt.Errorf("cache: %s has no revision main", dir)
	}
	rev := strings.TrimSpace(string(ref))
	if !revision.MatchString(rev) {
		return Place{}, fmt.Errorf("cache: %s/refs/main has %.60q, want a revision", dir, rev)
	}
	snap := filepath.Join(dir, "snapshots", rev)
	if err := usable(snap); err != nil {
		return Place{}, fmt.Errorf("cache: %w", err)
	}
	p := Place{Dir: snap, How: "the hub's cache, revision " + rev[:min(8, len(rev))]}
	p.Files = readListing(snap)
	return p, nil
}

var revision = regexp.MustCompile(`^[0-9a-zA-Z._-]{1,64}$`)

// listing is a file of ours beside fetched ones: the names of all files of the
// repository, for some models are known by the names of their weights.
const listing = ".kvasir-files"

func readListing(dir string) []string {
	b, err := os.ReadFile(filepath.Join(dir, listing))
	if err != nil {
		return nil
	}
	names := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(names)
	return names
}
