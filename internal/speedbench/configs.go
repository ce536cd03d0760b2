package main

// The peers' files: what their documentation gives for a relay of event streams, with connections to the engine kept.
const (
	nginxConfig = `daemon off;
worker_processes 2;
pid PLACE/nginx.pid;
error_log stderr error;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path PLACE/body; proxy_temp_path PLACE/proxy; fastcgi_temp_path PLACE/fastcgi; uwsgi_temp_path PLACE/uwsgi; scgi_temp_path PLACE/scgi;
  keepalive_requests 1000000;
  upstream engine { server 127.0.0.1:ENGINEPORT; keepalive 256; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:PORT;
    location / {
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`
	haproxyConfig = `global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend in
  bind 127.0.0.1:PORT
  default_backend engine
backend engine
  server e 127.0.0.1:ENGINEPORT pool-max-conn 1024
`
	envoyConfig = `static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: engine, timeout: 0s } }] }
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: engine
    type: STATIC
    load_assignment:
      cluster_name: engine
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ENGINEPORT } } } }] }]
`
)
