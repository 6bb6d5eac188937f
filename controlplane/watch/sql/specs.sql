SELECT gateway_id, spec FROM gateway_config WHERE gateway_id = ANY(%(gateways)s)
