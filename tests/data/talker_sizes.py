"""Contains config.json of both published sizes of talkers, and their numbers of parameters. Needs no torch."""


def published_config(hidden, intermediate, size):
    """Returns config.json as in the folders of the two sizes."""
    decoder = {"attention_bias": False, "attention_dropout": 0, "head_dim": 128, "hidden_act": "silu",
               "initializer_range": 0.02, "num_attention_heads": 16, "num_code_groups": 16, "num_key_value_heads": 8,
               "rms_norm_eps": 1e-06, "rope_theta": 1000000, "sliding_window": None, "use_cache": True,
               "use_sliding_window": False}
    predictor = {**decoder, "model_type": "qwen3_tts_talker_code_predictor", "hidden_size": 1024,
                 "intermediate_size": 3072, "layer_types": ["full_attention"] * 5, "max_position_embeddings": 65536,
                 "max_window_layers": 28, "num_hidden_layers": 5, "rope_scaling": None, "tie_word_embeddings": False,
                 "vocab_size": 2048}
    talker = {**decoder, "model_type": "qwen3_tts_talker", "code_predictor_config": predictor, "codec_bos_id": 2149,
              "codec_eos_token_id": 2150, "codec_think_id": 2154,
              "codec_language_id": {"chinese": 2055, "english": 2050, "german": 2053},
              "codec_nothink_id": 2155, "codec_pad_id": 2148, "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
              "hidden_size": hidden, "intermediate_size": intermediate, "max_position_embeddings": 32768,
              "num_hidden_layers": 28, "position_id_per_seconds": 13,
              "rope_scaling": {"interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default",
                               "type": "default"},
              "spk_id": {}, "spk_is_dialect": {}, "text_hidden_size": 2048, "text_vocab_size": 151936,
              "vocab_size": 3072}
    return {"architectures": ["Qwen3TTSForConditionalGeneration"], "assistant_token_id": 77091,
            "im_end_token_id": 151645, "im_start_token_id": 151644, "tts_bos_token_id": 151672,
            "tts_eos_token_id": 151673, "tts_pad_token_id": 151671, "model_type": "qwen3_tts",
            "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": size, "tts_model_type": "base",
            "speaker_encoder_config": {"enc_dim": hidden, "sample_rate": 24000}, "talker_config": talker,
            "transformers_version": "4.57.3"}


# The numbers of their parameters, with the predictor and without.
PUBLISHED = {"1.7B": (published_config(2048, 6144, "1b7"), 1916676352, 1741550592),
             "0.6B": (published_config(1024, 3072, "0b6"), 905788672, 764218368)}
